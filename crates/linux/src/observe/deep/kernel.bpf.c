// SPDX-License-Identifier: MIT OR Apache-2.0
// Watches RCU and the scheduler from inside the kernel: grace periods, what is queued to be freed after them, and which tasks
// run while others wait for their CPU. All is added up here, in maps of fixed size; nothing is sent for each call. ebpf.rs reads
// the maps and knows their layout.
//
// Source: kernel/rcu/tree.c of Linux 6.1 to 6.18 (rcu_gp_init returns whether it began a grace period); sched_switch and
// sched_wakeup in include/trace/events/sched.h; bpf-helpers(7). Fields of kernel structures are read at the offsets in the
// running kernel's own type information (CO-RE).
#include <linux/bpf.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

// Grace periods that are kept for the reader; a kernel has fewer in a second.
#define GRACES 512
// Functions that queue or free. A kernel has a few hundred.
#define FUNCTIONS 1024
// Slices of a CPU that are kept, to tell who ran while a task waited. What is older counts for nobody.
#define SLICES 8
// Frames looked at to find who called kvfree_call_rcu: the programs' own come first.
#define FRAMES 10
// Up to so many calls of kvfree_call_rcu in a window on a CPU are traced to their callers, then one in EACH.
#define EXACT 1024
#define EACH 16
// A window is 2^WINDOW ns, about a second.
#define WINDOW 30

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct task_struct {
	int pid;
	unsigned int __state;
	char comm[16];
};

// Until Linux 5.13.
struct task_struct___old {
	long state;
};
#pragma clang attribute pop

struct grace {
	__u64 begin_ns;
	// When it counted as begun for those that wait for one.
	__u64 begun_ns;
	__u64 end_ns;
	__u64 forced;
};

struct graces {
	__u64 ended;
	struct grace open;
	struct grace last[GRACES];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct graces);
} graces SEC(".maps");

// Calls by function. Those of functions that find no room count for function 0, which the reader puts there.
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, FUNCTIONS);
	__type(key, __u64);
	__type(value, __u64);
} queued SEC(".maps");

struct window {
	__u64 number;
	__u64 calls;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct window);
} windows SEC(".maps");

struct name {
	char comm[16];
};

struct slice {
	__u64 begin_ns;
	__u64 end_ns;
	__u32 is_idle;
	struct name name;
};

struct slices {
	__u64 ended;
	__u64 since_ns;
	struct slice last[SLICES];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct slices);
} slices SEC(".maps");

// Since when a task can run and does not. A task that finds no room waits unseen.
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__type(key, __u32);
	__type(value, __u64);
} waiting SEC(".maps");

// For how long others waited while tasks of this name ran. A task that moved while it waited counts for the CPU where it runs in
// the end. Names that were long not seen make room for new ones.
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, struct name);
	__type(value, __u64);
} in_the_way SEC(".maps");

// Where kvfree_call_rcu begins and ends. Set before loading.
const volatile __u64 free_begin = 0;
const volatile __u64 free_end = 0;

static __always_inline struct graces *all_graces(void)
{
	__u32 only = 0;

	return bpf_map_lookup_elem(&graces, &only);
}

SEC("fentry/rcu_gp_init")
int gp_begins(void *ctx)
{
	struct graces *all = all_graces();

	if (!all)
		return 0;
	all->open.begin_ns = bpf_ktime_get_ns();
	all->open.begun_ns = 0;
	all->open.forced = 0;
	return 0;
}

SEC("fexit/rcu_gp_init")
int gp_begun(unsigned long long *ctx)
{
	struct graces *all = all_graces();

	if (all && all->open.begin_ns && (ctx[0] & 0xff))
		all->open.begun_ns = bpf_ktime_get_ns();
	return 0;
}

SEC("fentry/force_qs_rnp")
int gp_forced(void *ctx)
{
	struct graces *all = all_graces();

	if (all)
		all->open.forced++;
	return 0;
}

SEC("fentry/rcu_gp_cleanup")
int gp_ends(void *ctx)
{
	struct graces *all = all_graces();
	__u64 at;

	// The one that was open when this was attached has no begin.
	if (!all || !all->open.begun_ns)
		return 0;
	all->open.end_ns = bpf_ktime_get_ns();
	at = all->ended % GRACES;
	all->last[at] = all->open;
	all->open.begun_ns = 0;
	all->ended++;
	return 0;
}

static __always_inline void count(__u64 function, __u64 calls)
{
	__u64 *sum = bpf_map_lookup_elem(&queued, &function), none = 0;

	if (!sum) {
		bpf_map_update_elem(&queued, &function, &none, BPF_NOEXIST);
		sum = bpf_map_lookup_elem(&queued, &function);
	}
	if (!sum) {
		function = 0;
		sum = bpf_map_lookup_elem(&queued, &function);
	}
	// Each CPU has its own sum, but an interrupt may queue something meanwhile.
	if (sum)
		__sync_fetch_and_add(sum, calls);
}

// The function is the second argument. Older kernels (6.1) do not let a program read a pointer to a function directly.
static __always_inline void count_callback(unsigned long long *ctx)
{
	__u64 function = 0;

	bpf_probe_read_kernel(&function, sizeof(function), &ctx[1]);
	count(function, 1);
}

SEC("fentry/call_rcu")
int queue(unsigned long long *ctx)
{
	count_callback(ctx);
	return 0;
}

SEC("fentry/call_rcu_hurry")
int queue_hurry(unsigned long long *ctx)
{
	count_callback(ctx);
	return 0;
}

SEC("fentry/kvfree_call_rcu")
int queue_plain(void *ctx)
{
	__u64 frames[FRAMES] = {}, now = bpf_ktime_get_ns() >> WINDOW, calls = 1, caller = 0;
	struct window *window;
	int is_inside = 0;
	__u32 only = 0;

	window = bpf_map_lookup_elem(&windows, &only);
	if (!window)
		return 0;
	if (window->number != now) {
		window->number = now;
		window->calls = 0;
	}
	window->calls++;
	if (window->calls > EXACT) {
		if (window->calls % EACH)
			return 0;
		calls = EACH;
	}
	bpf_get_stack(ctx, frames, sizeof(frames), 0);
	for (int i = 0; i < FRAMES; i++) {
		int is_here = frames[i] >= free_begin && frames[i] < free_end;

		if (is_inside && !is_here) {
			caller = frames[i];
			break;
		}
		is_inside = is_here;
	}
	count(caller, calls);
	return 0;
}

static __always_inline void charge(const struct name *name, __u64 ns)
{
	__u64 *sum = bpf_map_lookup_elem(&in_the_way, name), none = 0;

	if (!sum) {
		bpf_map_update_elem(&in_the_way, name, &none, BPF_NOEXIST);
		sum = bpf_map_lookup_elem(&in_the_way, name);
	}
	if (sum)
		__sync_fetch_and_add(sum, ns);
}

static __always_inline void waits(struct task_struct *task, __u64 now)
{
	__u32 pid = task->pid;

	bpf_map_update_elem(&waiting, &pid, &now, BPF_ANY);
}

SEC("tp_btf/sched_wakeup")
int BPF_PROG(wakes, struct task_struct *task)
{
	waits(task, bpf_ktime_get_ns());
	return 0;
}

SEC("tp_btf/sched_wakeup_new")
int BPF_PROG(begins, struct task_struct *task)
{
	waits(task, bpf_ktime_get_ns());
	return 0;
}

static __always_inline int is_runnable(struct task_struct *task)
{
	if (bpf_core_field_exists(task->__state))
		return !BPF_CORE_READ(task, __state);
	return !BPF_CORE_READ((struct task_struct___old *)task, state);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(switches, int preempt, struct task_struct *before, struct task_struct *next)
{
	__u64 now = bpf_ktime_get_ns(), *since, since_ns;
	__u32 only = 0, pid = next->pid;
	struct slices *all = bpf_map_lookup_elem(&slices, &only);
	struct slice *slice;

	if (!all)
		return 0;
	slice = &all->last[all->ended % SLICES];
	slice->begin_ns = all->since_ns;
	slice->end_ns = now;
	slice->is_idle = before->pid == 0;
	bpf_probe_read_kernel(&slice->name, sizeof(slice->name), &before->comm);
	all->ended++;
	all->since_ns = now;
	if (before->pid && (preempt || is_runnable(before)))
		waits(before, now);
	if (!pid)
		return 0;
	since = bpf_map_lookup_elem(&waiting, &pid);
	if (!since)
		return 0;
	since_ns = *since;
	bpf_map_delete_elem(&waiting, &pid);
	for (int i = 1; i <= SLICES; i++) {
		__u64 from_ns;

		slice = &all->last[(all->ended - i) % SLICES];
		if (slice->end_ns <= since_ns || slice->end_ns > now)
			break;
		from_ns = slice->begin_ns > since_ns ? slice->begin_ns : since_ns;
		// The first slice on a CPU has no begin.
		if (!slice->is_idle && slice->begin_ns)
			charge(&slice->name, slice->end_ns - from_ns);
	}
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
