/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Where the running kernel keeps the members of its structures, read from the
 * type information that it carries.
 */
#ifndef KSFT_BTF_H
#define KSFT_BTF_H

#include <fcntl.h>
#include <linux/btf.h>
#include <linux/types.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define KSFT_BTF_FILE	"/sys/kernel/btf/vmlinux"

/* A member that somebody asks for, and the answer. */
struct ksft_btf_member {
	const char *type;	/* name of the structure */
	const char *name;
	bool found;
	__u32 id;		/* the member's own type */
	__u32 offset;		/* bytes */
	__u32 elements;		/* 0 unless it is an array */
};

struct ksft_btf {
	unsigned char *data;
	const unsigned char *type, *end;	/* all types */
	const char *name;			/* all names */
	__u32 names;				/* bytes of them */
};

/* Read the kernel's types.  NULL, or why there are none. */
static inline const char *ksft_btf_open(struct ksft_btf *btf)
{
	size_t size = 1 << 20, len = 0;
	struct btf_header head;
	ssize_t got = 0;
	int fd;

	memset(btf, 0, sizeof(*btf));
	fd = open(KSFT_BTF_FILE, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return "CONFIG_DEBUG_INFO_BTF is not set";
	do {
		unsigned char *more;

		len += got;
		if (len == size || !btf->data) {
			size *= 2;
			more = realloc(btf->data, size);
			if (!more)
				break;
			btf->data = more;
		}
		got = read(fd, btf->data + len, size - len);
	} while (got > 0);
	close(fd);

	if (len >= sizeof(head)) {
		memcpy(&head, btf->data, sizeof(head));
		if (head.magic == BTF_MAGIC && head.hdr_len <= len &&
		    head.type_off <= len - head.hdr_len &&
		    head.type_len <= len - head.hdr_len - head.type_off &&
		    head.str_off <= len - head.hdr_len && head.str_len &&
		    head.str_len <= len - head.hdr_len - head.str_off) {
			btf->type = btf->data + head.hdr_len + head.type_off;
			btf->end = btf->type + head.type_len;
			btf->name = (char *)btf->data + head.hdr_len +
				    head.str_off;
			btf->names = head.str_len;
			if (!btf->name[btf->names - 1])
				return NULL;
		}
	}
	free(btf->data);
	btf->data = NULL;
	return KSFT_BTF_FILE " is not what it should be";
}

static inline void ksft_btf_close(struct ksft_btf *btf)
{
	free(btf->data);
	memset(btf, 0, sizeof(*btf));
}

static inline const char *ksft_btf_name(const struct ksft_btf *btf,
					__u32 offset)
{
	return offset < btf->names ? btf->name + offset : "";
}

/* What follows the fixed part of a type, bytes; SIZE_MAX for a new kind. */
static inline size_t ksft_btf_rest(const struct btf_type *type)
{
	size_t nr = BTF_INFO_VLEN(type->info);

	switch (BTF_INFO_KIND(type->info)) {
	case BTF_KIND_INT:
	case BTF_KIND_VAR:
	case BTF_KIND_DECL_TAG:
		return 4;
	case BTF_KIND_ARRAY:
		return sizeof(struct btf_array);
	case BTF_KIND_STRUCT:
	case BTF_KIND_UNION:
		return nr * sizeof(struct btf_member);
	case BTF_KIND_ENUM:
	case BTF_KIND_FUNC_PROTO:
		return nr * 8;
	case BTF_KIND_DATASEC:
	case BTF_KIND_ENUM64:
		return nr * 12;
	case BTF_KIND_PTR:
	case BTF_KIND_FWD:
	case BTF_KIND_TYPEDEF:
	case BTF_KIND_VOLATILE:
	case BTF_KIND_CONST:
	case BTF_KIND_RESTRICT:
	case BTF_KIND_FUNC:
	case BTF_KIND_FLOAT:
	case BTF_KIND_TYPE_TAG:
		return 0;
	default:
		return SIZE_MAX;
	}
}

/* The type after @at, or NULL at the end of all types. */
static inline const unsigned char *ksft_btf_next(const struct ksft_btf *btf,
						 const unsigned char *at)
{
	size_t left = btf->end - at;
	struct btf_type type;
	size_t rest;

	memcpy(&type, at, sizeof(type));
	rest = ksft_btf_rest(&type);
	if (left < 2 * sizeof(type) || rest > left - 2 * sizeof(type))
		return NULL;
	return at + sizeof(type) + rest;
}

/* Answer what is asked of this structure. */
static inline void ksft_btf_struct(const struct ksft_btf *btf,
				   const unsigned char *at,
				   struct ksft_btf_member *asked, size_t nr)
{
	struct btf_type type;
	const char *name;
	size_t i, j;

	memcpy(&type, at, sizeof(type));
	name = ksft_btf_name(btf, type.name_off);
	for (i = 0; i < nr; i++) {
		if (asked[i].found || strcmp(name, asked[i].type))
			continue;
		for (j = 0; j < BTF_INFO_VLEN(type.info); j++) {
			struct btf_member member;
			__u32 bits;

			memcpy(&member,
			       at + sizeof(type) + j * sizeof(member),
			       sizeof(member));
			if (strcmp(ksft_btf_name(btf, member.name_off),
				   asked[i].name))
				continue;
			bits = member.offset;
			if (BTF_INFO_KFLAG(type.info))
				bits = BTF_MEMBER_BIT_OFFSET(bits);
			asked[i].found = true;
			asked[i].id = member.type;
			asked[i].offset = bits / 8;
		}
	}
}

/* Answer all that is asked; what has no answer is not marked as found. */
static inline void ksft_btf_find(const struct ksft_btf *btf,
				 struct ksft_btf_member *asked, size_t nr)
{
	const unsigned char *at;
	struct btf_array array;
	struct btf_type type;
	__u32 id;
	size_t i;

	for (at = btf->type; at; at = ksft_btf_next(btf, at)) {
		memcpy(&type, at, sizeof(type));
		if (BTF_INFO_KIND(type.info) == BTF_KIND_STRUCT)
			ksft_btf_struct(btf, at, asked, nr);
	}
	/* Types have no numbers of their own; the first one is number 1. */
	for (at = btf->type, id = 1; at; at = ksft_btf_next(btf, at), id++) {
		memcpy(&type, at, sizeof(type));
		if (BTF_INFO_KIND(type.info) != BTF_KIND_ARRAY)
			continue;
		memcpy(&array, at + sizeof(type), sizeof(array));
		for (i = 0; i < nr; i++)
			if (asked[i].found && asked[i].id == id)
				asked[i].elements = array.nelems;
	}
}

#endif /* KSFT_BTF_H */
