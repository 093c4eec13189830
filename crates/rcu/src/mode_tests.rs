use crate::domain::Domain;
use crate::mode::{ASYMMETRIC, FENCED};
use crate::options::{Fencing, Options};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Readers of both kinds and a writer, while the domain switches as fast as it can. Objects are poisoned, not
/// freed.
#[test]
fn switching_under_load_is_safe() {
    let domain = Domain::new(Options::new().fencing(Fencing::Adaptive { above_ns: u64::MAX }));
    if !crate::platform::probe().asymmetric {
        return;
    }
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
                domain.core().modes.force(domain.core(), FENCED);
                domain.core().modes.force(domain.core(), ASYMMETRIC);
            }
        });
        // The switcher may get the CPU late.
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

#[test]
fn slow_membarrier_moves_an_adaptive_domain_to_fences_and_quick_ones_back() {
    if !crate::platform::probe().asymmetric {
        return;
    }
    let domain = Domain::new(Options::new().fencing(Fencing::Adaptive { above_ns: 1_000 }));
    let modes = &domain.core().modes;
    (0..2).for_each(|_| modes.observe(domain.core(), Some(1_001)));
    assert!(!domain.stats().fenced);
    modes.observe(domain.core(), Some(1_000));
    (0..2).for_each(|_| modes.observe(domain.core(), Some(1_001)));
    assert!(!domain.stats().fenced, "not three in a row");
    modes.observe(domain.core(), Some(1_001));
    assert!(domain.stats().fenced && domain.stats().switches == 1);

    let domain = Domain::new(Options::new().fencing(Fencing::Adaptive { above_ns: u64::MAX }));
    let modes = &domain.core().modes;
    modes.force(domain.core(), FENCED);
    modes.observe(domain.core(), None);
    assert!(domain.stats().fenced, "one quick call is not enough");
    while domain.stats().fenced {
        modes.observe(domain.core(), None);
    }
    assert_eq!(domain.stats().switches, 2);
}
