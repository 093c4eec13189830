// SPDX-License-Identifier: MIT OR Apache-2.0
// Watches which tasks have I/O outstanding at the block layer. Reports an event when a task without outstanding I/O issues
// one, and when a task's last outstanding I/O ends. An I/O is identified by the address of its struct bio. Devices that queue
// requests trace the completion of a request, which may contain several bios; stacked devices trace that of each bio.
//
// Source: the kernel's include/trace/events/block.h: block_bio_queue(bio) (since Linux 5.11), block_rq_complete(request,
// error, bytes) and block_bio_complete(queue, bio). Only the fields of kernel structures named below are read, at the offsets
// in the running kernel's own type information (CO-RE). bpf-helpers(7).
#include <linux/bpf.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#define BEGIN 0
#define END 1
// The most bios of a request. Devices take no more segments.
#define MOST_BIOS 256

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct bvec_iter {
	unsigned int bi_size;
};

struct bio {
	struct bio *bi_next;
	struct bvec_iter bi_iter;
};

struct request {
	struct bio *bio;
};
#pragma clang attribute pop

// ebpf.rs reads this layout.
struct event {
	__u64 at_ns;
	__u64 took_ns;
	__u32 pid;
	__u32 tid;
	__u32 kind;
	__u32 unused;
};

struct io {
	__u64 at_ns;
	__u32 pid;
	__u32 tid;
};

// The daemon's PID namespace, whose ids are reported. Set before loading.
const volatile __u64 namespace_dev = 0;
const volatile __u64 namespace_inode = 0;

// Whether new I/Os are reported. I/Os in flight are followed to their end in any case. It is alone in its section, because
// the daemon writes the whole section.
volatile __u32 watching;
// Number of I/Os in flight. If there are none, completions are ignored.
volatile __s64 flying SEC(".data.flying") = 0;

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__type(key, __u64);
	__type(value, struct io);
} in_flight SEC(".maps");

// Number of outstanding I/Os of each task. The least recently used entries make room for new ones.
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, __s64);
} outstanding SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} events SEC(".maps");

static __always_inline void tell(const struct io *io, __u32 kind, __u64 at_ns, __u64 took_ns)
{
	struct event *event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);

	// If the ring is full, the event is lost; the task's next event corrects that.
	if (!event)
		return;
	event->at_ns = at_ns;
	event->took_ns = took_ns;
	event->pid = io->pid;
	event->tid = io->tid;
	event->kind = kind;
	event->unused = 0;
	// The daemon polls the ring, so wake nobody.
	bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
}

static __always_inline void ended(const struct io *io, __u64 at_ns)
{
	__s64 *count = bpf_map_lookup_elem(&outstanding, &io->tid);

	if (count && __sync_fetch_and_add(count, -1) == 1)
		tell(io, END, at_ns, at_ns - io->at_ns);
}

SEC("raw_tp/block_bio_queue")
int bio_queue(struct bpf_raw_tracepoint_args *ctx)
{
	__u64 bio = ctx->args[0];
	struct bpf_pidns_info ids = {};
	struct io io = {};
	struct io *stale;
	__s64 *count, none = 0;

	if (!watching)
		return 0;
	if (bpf_get_ns_current_pid_tgid(namespace_dev, namespace_inode, &ids, sizeof(ids)))
		return 0;
	io.at_ns = bpf_ktime_get_ns();
	io.pid = ids.tgid;
	io.tid = ids.pid;
	stale = bpf_map_lookup_elem(&in_flight, &bio);
	if (stale) {
		struct io former = *stale;

		ended(&former, io.at_ns);
	}
	if (bpf_map_update_elem(&in_flight, &bio, &io, BPF_ANY))
		return 0;
	if (!stale)
		__sync_fetch_and_add(&flying, 1);
	bpf_map_update_elem(&outstanding, &io.tid, &none, BPF_NOEXIST);
	count = bpf_map_lookup_elem(&outstanding, &io.tid);
	if (count && __sync_fetch_and_add(count, 1) == 0)
		tell(&io, BEGIN, io.at_ns, 0);
	return 0;
}

// Not inlined, so that the kernel verifies it once, not once for each bio of a request.
__attribute__((noinline)) int complete(__u64 bio)
{
	struct io *found = bpf_map_lookup_elem(&in_flight, &bio);
	struct io io;

	if (!found)
		return 0;
	io = *found;
	if (!bpf_map_delete_elem(&in_flight, &bio))
		__sync_fetch_and_add(&flying, -1);
	ended(&io, bpf_ktime_get_ns());
	return 0;
}

SEC("raw_tp/block_rq_complete")
int request_complete(struct bpf_raw_tracepoint_args *ctx)
{
	struct request *request = (struct request *)ctx->args[0];
	__u32 left = ctx->args[2];
	struct bio *bio;

	if (!flying)
		return 0;
	bio = BPF_CORE_READ(request, bio);
	for (int i = 0; i < MOST_BIOS && bio; i++) {
		__u32 bytes = BPF_CORE_READ(bio, bi_iter.bi_size);

		// The rest of the request completes later.
		if (bytes > left)
			break;
		left -= bytes;
		complete((__u64)bio);
		bio = BPF_CORE_READ(bio, bi_next);
	}
	return 0;
}

SEC("raw_tp/block_bio_complete")
int bio_complete(struct bpf_raw_tracepoint_args *ctx)
{
	return flying ? complete(ctx->args[1]) : 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
