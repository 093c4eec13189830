//! Guests that tell nothing are read as those that tell their symbols: with KASLR on, and with both kernels.

mod support;

use std::time::Duration;

use reprieve_linux::proc::ProcRoot;
use reprieve_vm::attach::{self, Attached, Given, WANTED};
use reprieve_vm::lab::Booted;
use support::{BOOT_LIMIT, Bench, STOP_LIMIT, compare};

fn boot(bench: &Bench, memory_mib: u64) -> Booted {
    let spec = reprieve_vm::qemu::MachineSpec { kaslr: true, ..bench.spec(2, memory_mib, "") };
    bench.lab.boot(&spec, &bench.lab.pcpus, BOOT_LIMIT).unwrap_or_else(|error| panic!("{error}"))
}

fn attach_to(booted: &Booted, given: &Given) -> Attached {
    let root = ProcRoot::default();
    let qemu = attach::of(&root, booted.machine.pid()).unwrap();
    assert_eq!(qemu.vcpus, booted.machine.vcpu_tids);
    attach::attach(&root, qemu, given, &|| false).unwrap_or_else(|error| panic!("{error}"))
}

/// Every symbol is where the guest itself says, and the guest's own count of grace periods is what is read.
fn check(bench: &Bench) {
    let mut booted = boot(bench, 512);
    let attached = attach_to(&booted, &Given::default());
    eprintln!("{} at {:#x}", attached.kernel.release, attached.kernel.symbols["_text"]);
    assert_eq!(attached.kernel.release, booted.hello.release);
    let told = WANTED.iter().filter(|name| booted.hello.symbols.contains_key(**name));
    let mut compared = 0;
    for name in told {
        assert_eq!(attached.kernel.symbols.get(*name), booted.hello.symbols.get(*name), "{name}");
        compared += 1;
    }
    assert!(compared >= 10, "only {compared} symbols were compared");

    // The same by the guest's own list.
    let list = tempfile::NamedTempFile::new().unwrap();
    let lines = booted.hello.symbols.iter().map(|(name, address)| format!("{address:016x} T {name}\n"));
    std::fs::write(list.path(), lines.collect::<String>()).unwrap();
    // It lacks the places of the types, so these come from a file, too.
    let bytes = bench.lab.image.kernel.btf_bytes(&support::cache(), &mut |_| {}).unwrap();
    let btf = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(btf.path(), bytes).unwrap();
    let (btf, symbols) = (Some(btf.path().into()), Some(list.path().into()));
    let given = attach_to(&booted, &Given { btf, symbols });
    assert_eq!(given.kernel.text_offset, attached.kernel.text_offset);
    assert_eq!(given.kernel.phys_base, attached.kernel.phys_base);

    booted.link.start("memory pause_us=200 poll_us=100").unwrap();
    let readers = [attached.reader, given.reader];
    let figures = compare::watch_grace_periods(&mut booted, readers, Duration::from_millis(1500));
    eprintln!("{figures:?}");
    figures.counts_agree().unwrap();
    assert!(figures.guest_count > 0);
    booted.link.stop(STOP_LIMIT).unwrap();
}

#[test]
fn the_current_kernel_is_read_wherever_it_is() {
    let Some(bench) = Bench::open() else { return };
    check(&bench);
}

#[test]
fn linux_6_12_is_read_wherever_it_is() {
    let Some(bench) = Bench::open_series("6.12") else { return };
    check(&bench);
}

#[test]
fn a_guest_that_ends_is_lost_and_not_another() {
    let Some(bench) = Bench::open() else { return };
    let booted = boot(&bench, 256);
    let attached = attach_to(&booted, &Given::default());
    let first = attached.reader.word(attached.clock);
    assert!(first > 0 && !attached.reader.is_lost());
    let qemu = attached.qemu.clone();
    drop(booted);
    assert_eq!(attached.reader.gp_seq(), 0);
    assert!(attached.reader.is_lost());
    assert!(attach::attach(&ProcRoot::default(), qemu, &Given::default(), &|| false).is_err());
}
