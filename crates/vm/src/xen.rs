//! The ground `xen`: real Xen in deterministic emulation.
//!
//! Xen, a PV dom0 and PV domUs, which need no hardware virtualisation, boot under QEMU with counted instructions: time
//! is the number of instructions executed, so a run gives the same again, bit for bit, as long as a pCPU is busy. Where
//! all fall idle (without a spinner; and now and then while Xen and dom0 boot, if QEMU's threads have to wait for a CPU of the
//! host) repeated runs may begin microseconds apart, and then differ.
//! One pCPU that dom0 and the domUs share, or (`host.pcpus = 2`) one for dom0 and one for the domUs. The domUs read the
//! time stamp counter natively, as on a real fleet. What lasts milliseconds (slices, ticks, accounting) is
//! real; every instruction takes 4 ns and memory is free, so costs of microseconds mean nothing.
//!
//! A boot takes as long as measuring for 20 s. So one serves up to [`settings::SEGMENTS_MAX`] repetitions of a condition, each a
//! segment that begins at a phase of its own of Xen's ticks and accountings.
//!
//! Invariant: while a domU measures, nothing else happens. All pCPUs share one clock, so a dom0 that runs would stop
//! the domUs' time.
//!
//! | module | does |
//! |---|---|
//! | [`image`] | Xen, kernel, dom0's and the domUs' file systems, from the distribution's packages |
//! | [`settings`] | from a scenario to the command lines of Xen and dom0 |
//! | [`report`] | what a domU measured, as it stands in its console's log |
//! | [`trace`] | xentrace's records, as intervals and decisions |
//! | [`lab`] | one boot |
//! | [`analysis`] | from what a run left to its observation |
//! | [`ground`] | a scenario's plan |

pub mod analysis;
pub mod ground;
pub mod image;
pub mod lab;
pub mod report;
pub mod settings;
pub mod trace;

pub use ground::XenGround;
