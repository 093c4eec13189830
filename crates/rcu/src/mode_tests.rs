use crate::domain::Domain;
use crate::fence;
use crate::mode::{ASYMMETRIC, FENCED};
use crate::options::{Fencing, Options};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Readers of both kinds and a writer, while the domain switches as fast as it can. Objects are poisoned instead of freed.
#[test]
fn switching_under_load_is_safe() {
    let domain = Domain::new(Options::new().fencing(Fencing::Adaptive));
    let true = crate::machine::probe().asymmetric else { return };
    let slots: Vec<AtomicU64> = (0..16).map(|_| AtomicU64::new(1)).collect();
    let (current, stop, poisoned) = (AtomicU64::new(0), AtomicBool::new(false), AtomicU64::new(0));
    let dwell = || {
        let slot = &slots[current.load(Ordering::Acquire) as usize];
        (0..200).all(|_| slot.load(Ordering::Relaxed) == 1)
    };
    std::thread::scope(|s| {
        for restartable in [true, false] {
            let (domain, stop, poisoned) = (&domain, &stop, &poisoned);
            s.spawn(move || {
                let reader = domain.register("reader").unwrap();
                while !stop.load(Ordering::Relaxed) {
                    let fine = if restartable {
                        // SAFETY: the section loads.
                        unsafe { reader.read(dwell) }
                    } else {
                        let _guard = reader.lock();
                        dwell()
                    };
                    poisoned.fetch_add(u64::from(!fine), Ordering::Relaxed);
                }
            });
        }
        s.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                domain.core().modes.force(&domain.core().clock.mode, FENCED);
                domain.core().modes.force(&domain.core().clock.mode, ASYMMETRIC);
            }
        });
        // The switcher may get its CPU late.
        for i in (0u64..).take_while(|&i| i < 10_000 || domain.core().modes.switches() < 100) {
            let (old, new) = ((i % 16) as usize, (i + 1) % 16);
            slots[new as usize].store(1, Ordering::Relaxed);
            current.store(new, Ordering::Release);
            domain.synchronize();
            slots[old].store(0, Ordering::Relaxed);
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(poisoned.load(Ordering::Relaxed), 0);
    assert!(domain.stats().switches >= 100);
}

/// One thread switches, unlinks and poisons in turn. A section that began before the switch may still run when the
/// writer no longer calls membarrier; then the switch must have restarted it.
#[test]
fn a_switch_starts_again_what_relied_on_membarrier() {
    let domain = Domain::new(Options::new().fencing(Fencing::Adaptive));
    let true = crate::machine::probe().asymmetric else { return };
    let ms = std::env::var("REPRIEVE_TORTURE_MS").ok().and_then(|ms| ms.parse().ok()).unwrap_or(200);
    let end = std::time::Instant::now() + std::time::Duration::from_millis(ms);
    let slots: Vec<AtomicU64> = (0..16).map(|_| AtomicU64::new(1)).collect();
    let (current, stop, poisoned) = (AtomicU64::new(0), AtomicBool::new(false), AtomicU64::new(0));
    let dwell = || {
        let slot = &slots[current.load(Ordering::Acquire) as usize];
        (0..2_000).all(|_| slot.load(Ordering::Relaxed) == 1)
    };
    std::thread::scope(|s| {
        s.spawn(|| {
            let reader = domain.register("reader").unwrap();
            while !stop.load(Ordering::Relaxed) {
                // SAFETY: the section loads.
                poisoned.fetch_add(u64::from(!unsafe { reader.read(dwell) }), Ordering::Relaxed);
            }
        });
        let modes = &domain.core().modes;
        for i in (0u64..).take_while(|_| std::time::Instant::now() < end) {
            let (old, new) = ((i % 16) as usize, (i + 1) % 16);
            slots[new as usize].store(1, Ordering::Relaxed);
            modes.force(&domain.core().clock.mode, ASYMMETRIC);
            // Leaves time for a section to begin.
            (0..i % 200).for_each(|_| std::hint::spin_loop());
            modes.force(&domain.core().clock.mode, FENCED);
            current.store(new, Ordering::Release);
            domain.synchronize();
            slots[old].store(0, Ordering::Relaxed);
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(poisoned.load(Ordering::Relaxed), 0);
    assert!(domain.stats().switches > 0);
}

#[test]
fn an_adaptive_domain_follows_membarrier_and_waits_for_no_call() {
    let true = crate::machine::probe().asymmetric else { return };
    let domain = Domain::new(Options::new().fencing(Fencing::Adaptive));
    let (core, modes) = (domain.core(), &domain.core().modes);
    let readers = &core.clock.mode;
    (0..2).for_each(|_| modes.observe(readers, true));
    assert!(
        domain.stats().fenced && modes.writers_need_barrier(),
        "the readers' sections are to be started again first"
    );
    fence::barrier().unwrap();
    modes.observe(readers, true);
    assert!(!modes.writers_need_barrier() && modes.switches() == 1);
    modes.observe(readers, true);
    modes.observe(readers, false);
    assert!(!domain.stats().fenced && modes.writers_need_barrier() && modes.switches() == 2);
    // membarrier is quick again before the switch is complete.
    modes.observe(readers, true);
    modes.observe(readers, false);
    assert!(!domain.stats().fenced && modes.writers_need_barrier() && modes.switches() == 2);
}
