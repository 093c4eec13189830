//! Perf events, and the rings into which the kernel writes their records.
//!
//! `event` opens one, `per_cpu` one on each CPU for all tasks, `kprobe` describes those of a function of the kernel. `ring`
//! takes records out of a ring, and `record` decodes them. Everything ends with the process that opened it.

pub(crate) mod event;
pub(crate) mod kprobe;
pub(crate) mod per_cpu;
pub(crate) mod record;
mod ring;
