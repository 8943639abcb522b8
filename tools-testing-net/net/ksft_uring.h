/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The least of io_uring that sends one request and waits for its answer,
 * on raw system calls: liburing need not be there.
 */
#ifndef KSFT_URING_H
#define KSFT_URING_H

#include <errno.h>
#include <linux/io_uring.h>
#include <linux/types.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

struct ksft_uring {
	int fd;
	void *sq_ring, *cq_ring;
	size_t sq_size, cq_size, sqes_size;
	struct io_uring_params params;
	struct io_uring_sqe *sqes;
};

static inline void ksft_uring_close(struct ksft_uring *ring)
{
	if (ring->sqes)
		munmap(ring->sqes, ring->sqes_size);
	if (ring->cq_ring)
		munmap(ring->cq_ring, ring->cq_size);
	if (ring->sq_ring)
		munmap(ring->sq_ring, ring->sq_size);
	if (ring->fd > 0)
		close(ring->fd);
	memset(ring, 0, sizeof(*ring));
}

static inline void *ksft_uring_map(int fd, size_t size, off_t offset)
{
	void *at = mmap(NULL, size, PROT_READ | PROT_WRITE,
			MAP_SHARED | MAP_POPULATE, fd, offset);

	return at == MAP_FAILED ? NULL : at;
}

/* Set up a ring.  Returns NULL, or why the kernel refused it. */
static inline const char *ksft_uring_open(struct ksft_uring *ring)
{
	struct io_uring_params *p = &ring->params;

	memset(ring, 0, sizeof(*ring));
	ring->fd = syscall(__NR_io_uring_setup, 4, p);
	if (ring->fd < 0 && (errno == EPERM || errno == EACCES))
		return "kernel.io_uring_disabled forbids io_uring";
	if (ring->fd < 0)
		return "CONFIG_IO_URING is not set";

	ring->sq_size = p->sq_off.array + p->sq_entries * sizeof(__u32);
	ring->cq_size = p->cq_off.cqes +
			p->cq_entries * sizeof(struct io_uring_cqe);
	ring->sqes_size = p->sq_entries * sizeof(struct io_uring_sqe);
	ring->sq_ring = ksft_uring_map(ring->fd, ring->sq_size,
				       IORING_OFF_SQ_RING);
	ring->cq_ring = ksft_uring_map(ring->fd, ring->cq_size,
				       IORING_OFF_CQ_RING);
	ring->sqes = ksft_uring_map(ring->fd, ring->sqes_size,
				    IORING_OFF_SQES);
	if (ring->sq_ring && ring->cq_ring && ring->sqes)
		return NULL;
	ksft_uring_close(ring);
	return "io_uring has no memory for its rings";
}

static inline __u32 *ksft_uring_word(void *ring, __u32 offset)
{
	return (__u32 *)((char *)ring + offset);
}

/* Submit one request and wait for it; its result, as in the completion. */
static inline int ksft_uring_do(struct ksft_uring *ring,
				const struct io_uring_sqe *sqe)
{
	const struct io_sqring_offsets *sq = &ring->params.sq_off;
	const struct io_cqring_offsets *cq = &ring->params.cq_off;
	__u32 *tail, *head, mask, index;
	struct io_uring_cqe *cqes;
	int ret;

	tail = ksft_uring_word(ring->sq_ring, sq->tail);
	mask = *ksft_uring_word(ring->sq_ring, sq->ring_mask);
	index = *tail & mask;
	ring->sqes[index] = *sqe;
	ksft_uring_word(ring->sq_ring, sq->array)[index] = index;
	__atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);

	head = ksft_uring_word(ring->cq_ring, cq->head);
	tail = ksft_uring_word(ring->cq_ring, cq->tail);
	do {
		ret = syscall(__NR_io_uring_enter, ring->fd, 1, 1,
			      IORING_ENTER_GETEVENTS, NULL, 0);
		if (ret < 0 && errno != EINTR)
			return -errno;
	} while (__atomic_load_n(tail, __ATOMIC_ACQUIRE) == *head);

	mask = *ksft_uring_word(ring->cq_ring, cq->ring_mask);
	cqes = (struct io_uring_cqe *)((char *)ring->cq_ring + cq->cqes);
	ret = cqes[*head & mask].res;
	__atomic_store_n(head, *head + 1, __ATOMIC_RELEASE);
	return ret;
}

static inline int ksft_uring_send(struct ksft_uring *ring, int fd,
				  const void *data, size_t len, int flags)
{
	struct io_uring_sqe sqe = {
		.opcode = IORING_OP_SEND,
		.fd = fd,
		.addr = (uintptr_t)data,
		.len = len,
		.msg_flags = flags,
	};

	return ksft_uring_do(ring, &sqe);
}

static inline int ksft_uring_sendmsg(struct ksft_uring *ring, int fd,
				     const struct msghdr *msg, int flags)
{
	struct io_uring_sqe sqe = {
		.opcode = IORING_OP_SENDMSG,
		.fd = fd,
		.addr = (uintptr_t)msg,
		.len = 1,
		.msg_flags = flags,
	};

	return ksft_uring_do(ring, &sqe);
}

#endif /* KSFT_URING_H */
