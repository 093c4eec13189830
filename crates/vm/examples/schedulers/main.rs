//! The simulator's fair schedulers against the real ones, alone: CFS in Debian's kernel 6.1, EEVDF in its kernel 6.12. The same mixes
//! of threads run in an emulated guest of one CPU whose time is the number of its instructions, so that nothing of the host disturbs
//! it and each run gives the same again; and on the simulator's schedulers.
//!
//! ```text
//! cargo run --release -p reprieve-vm --example schedulers -- RECORD.json
//! cargo run --release -p reprieve-vm --example schedulers -- --judge RECORD.json
//! ```
//! The first takes a quarter of an hour, and judges, too. Compared are shares of the CPU; how long threads are kept from running at a time; and how late those that
//! sleep run, which is printed and not judged. What the real kernel takes for switches and interrupts is in its figures alone.

mod inside;
mod mixes;
mod simulated;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use mixes::{MIXES, Mix, Seen, WINDOW_NS};
use reprieve_linux::proc::{ProcRoot, allowed_cpus};
use reprieve_linux::signals::Interrupt;
use reprieve_linux::warden::{self, Warden};
use reprieve_vm::image::{self, Cache, ImageOptions, KernelChoice};
use reprieve_vm::lab::{Booted, Lab};
use reprieve_vm::qemu::{self, Accel, Chosen, MachineSpec};
use reprieve_vm::{HogCommand, Host};
use serde::{Deserialize, Serialize};

const SEED: u32 = 1;
/// Of fewer times off, on both sides, quantiles are not compared.
const FEW: usize = 100;
const BOOT: Duration = Duration::from_secs(300);
/// For a mix: an emulated second may take several.
const PATIENCE: Duration = Duration::from_secs(600);
const OUTPUT: &str = "/tmp/program.out";
const NAME: &str = "schedulers";

/// Kernels, and whether their scheduler is EEVDF.
const KERNELS: [(&str, bool); 2] = [("", false), ("6.12", true)];

#[derive(Serialize, Deserialize)]
struct Record {
    command: String,
    kernels: Vec<OfKernel>,
}

#[derive(Serialize, Deserialize)]
struct OfKernel {
    kernel: String,
    scheduler: String,
    mixes: Vec<Compared>,
}

#[derive(Serialize, Deserialize)]
struct Compared {
    mix: String,
    kinds: Vec<OfKind>,
}

/// Threads that are alike, together.
#[derive(Serialize, Deserialize)]
struct OfKind {
    threads: usize,
    nice: i32,
    real: Figures,
    simulated: Figures,
}

/// Shares of the CPU over the window, of each thread, in order; and times in ns.
#[derive(Clone, Serialize, Deserialize)]
struct Figures {
    share_percent: Vec<f64>,
    offs: usize,
    off_p50_ns: Option<u64>,
    off_p99_ns: Option<u64>,
    lates: usize,
    late_p50_ns: Option<u64>,
    late_p99_ns: Option<u64>,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let done = match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["warden"] => {
            warden::run(std::io::stdin(), &ProcRoot::default());
            Ok(())
        }
        ["inside", number] => number.parse().map_err(|_| "no number".to_string()).and_then(inside::run),
        ["--judge", path] => judge(path).map_err(|error| error.to_string()),
        [path] => compare(path).map_err(|error| error.to_string()),
        _ => Err("name the record to write".into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("schedulers: {problem}");
            ExitCode::FAILURE
        }
    }
}

fn compare(path: &str) -> Result<(), Box<dyn std::error::Error>> {
    // Before minutes of work.
    std::fs::write(path, "")?;
    let mut kernels = Vec::new();
    for (series, is_eevdf) in KERNELS {
        let (lab, spec) = lab(series)?;
        let mut booted = lab.boot(&spec, &lab.pcpus, BOOT)?;
        let scheduler = if is_eevdf { "EEVDF" } else { "CFS" };
        println!("{} ({scheduler})", booted.hello.release);
        let mut of_kernel =
            OfKernel { kernel: booted.hello.release.clone(), scheduler: scheduler.into(), mixes: Vec::new() };
        for (number, mix) in MIXES.iter().enumerate() {
            let real = real(&mut booted, number)?;
            let compared = compared(mix, &real, &simulated::run(mix, is_eevdf));
            print(&compared);
            of_kernel.mixes.push(compared);
        }
        booted.link.power_off()?;
        print_verdict(&of_kernel);
        kernels.push(of_kernel);
    }
    let command = "cargo run --release -p reprieve-vm --example schedulers -- RECORD.json".into();
    let record = Record { command, kernels };
    std::fs::write(path, serde_json::to_string_pretty(&record)? + "\n")?;
    Ok(())
}

fn lab(series: &str) -> Result<(Lab, MachineSpec), Box<dyn std::error::Error>> {
    let exe = std::env::current_exe()?;
    let cache = Cache::new(Cache::default_dir(|name| std::env::var_os(name))?)?;
    let options = ImageOptions {
        kernel: KernelChoice::of(series),
        programs: vec![exe.clone()],
        ..ImageOptions::default()
    };
    let image = image::prepare(&cache, &options, &mut |step| eprintln!("{step}"))?;
    let host = Host {
        proc_root: ProcRoot::default(),
        warden: Arc::new(Warden::spawn(&exe, &["warden"])?),
        interrupt: Interrupt::install()?,
        programs: exe.clone(),
        daemon: exe.clone(),
        hog: HogCommand { exe, args: Vec::new() },
    };
    let chosen = Chosen { accel: Accel::Counted { seed: SEED }, reason: "time is counted".into() };
    let spec = MachineSpec {
        vcpus: 1,
        memory_bytes: 256 << 20,
        kernel: image.kernel.vmlinuz.clone(),
        initramfs: image.initramfs.clone(),
        append: String::new(),
        accel: chosen.accel,
        disk: None,
        kaslr: false,
        hypervisor: None,
    };
    Ok((Lab { host, image, chosen, qemu_version: qemu::version()?, pcpus: allowed_cpus()? }, spec))
}

/// What the threads of a mix see in the guest.
fn real(booted: &mut Booted, number: usize) -> Result<Vec<Seen>, Box<dyn std::error::Error>> {
    booted.link.start(&format!("program name={NAME} argument=inside argument={number}"))?;
    booted.link.wait_finished(PATIENCE).map_err(|error| booted.machine.explain(error))?;
    booted.link.stop(PATIENCE)?;
    Ok(serde_json::from_slice(&booted.link.read_file(OUTPUT)?)?)
}

fn compared(mix: &Mix, real: &[Seen], simulated: &[Seen]) -> Compared {
    let mut first = 0;
    let kinds = mix.kinds.iter().map(|kind| {
        let threads = first..first + kind.count;
        first += kind.count;
        OfKind {
            threads: kind.count,
            nice: kind.nice,
            real: figures(real, threads.clone()),
            simulated: figures(simulated, threads),
        }
    });
    Compared { mix: mix.name.into(), kinds: kinds.collect() }
}

/// Judges a record again.
fn judge(path: &str) -> Result<(), Box<dyn std::error::Error>> {
    let record: Record = serde_json::from_str(&std::fs::read_to_string(path)?)?;
    for of_kernel in &record.kernels {
        println!("{} ({})", of_kernel.kernel, of_kernel.scheduler);
        of_kernel.mixes.iter().for_each(print);
        print_verdict(of_kernel);
    }
    Ok(())
}

fn print_verdict(of_kernel: &OfKernel) {
    let agreeing = of_kernel.mixes.iter().filter(|mix| agrees(mix)).count();
    println!(
        "  {agreeing} of {} mixes: shares within {SHARE_PERCENT} percentage point, median and p99 of times off within a factor of {FACTOR}",
        of_kernel.mixes.len()
    );
}

/// Most that a thread's share of the CPU may differ, in percentage points; and a quantile of times off, as a factor. Both
/// stood in the plan. Shares are of what all threads got: in the real kernel switches and interrupts take up to 1.6 per
/// cent, of which the simulated schedulers know nothing.
const SHARE_PERCENT: f64 = 1.0;
const FACTOR: f64 = 1.2;

/// Whether the simulated figures are as they should be.
fn agrees(compared: &Compared) -> bool {
    let near = |real: Option<u64>, simulated: Option<u64>| match (real, simulated) {
        (Some(real), Some(simulated)) => {
            let factor = simulated as f64 / real as f64;
            (1.0 / FACTOR..=FACTOR).contains(&factor)
        }
        (real, simulated) => real == simulated,
    };
    let all = |side: fn(&OfKind) -> &Figures| -> f64 {
        compared.kinds.iter().flat_map(|kind| &side(kind).share_percent).sum()
    };
    let (all_real, all_simulated) = (all(|kind| &kind.real), all(|kind| &kind.simulated));
    compared.kinds.iter().all(|kind| {
        let (real, simulated) = (&kind.real, &kind.simulated);
        // A few times off, of thousands of bursts, have no quantiles.
        let few = real.offs.max(simulated.offs) < FEW;
        real.share_percent
            .iter()
            .zip(&simulated.share_percent)
            .all(|(a, b)| (a / all_real - b / all_simulated).abs() * 100.0 <= SHARE_PERCENT)
            && (few
                || near(real.off_p50_ns, simulated.off_p50_ns) && near(real.off_p99_ns, simulated.off_p99_ns))
    })
}

fn figures(all: &[Seen], of: std::ops::Range<usize>) -> Figures {
    let these = &all[of];
    let share = |seen: &Seen| 100.0 * seen.run_ns as f64 / WINDOW_NS as f64;
    let mut shares: Vec<f64> = these.iter().map(share).collect();
    shares.sort_by(f64::total_cmp);
    let pooled = |times: fn(&Seen) -> &Vec<u64>| {
        let mut pooled: Vec<u64> = these.iter().flat_map(|seen| times(seen).iter().copied()).collect();
        pooled.sort_unstable();
        pooled
    };
    let (off, late) = (pooled(|seen| &seen.off_ns), pooled(|seen| &seen.late_ns));
    Figures {
        share_percent: shares,
        offs: off.len(),
        off_p50_ns: quantile(&off, 0.5),
        off_p99_ns: quantile(&off, 0.99),
        lates: late.len(),
        late_p50_ns: quantile(&late, 0.5),
        late_p99_ns: quantile(&late, 0.99),
    }
}

/// The least that so large a share of the sorted values does not exceed.
fn quantile(sorted: &[u64], share: f64) -> Option<u64> {
    let at = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(at.saturating_sub(1)).copied()
}

fn print(compared: &Compared) {
    println!("  {}{}", compared.mix, if agrees(compared) { "" } else { "  DIFFERS" });
    let ms = |ns: Option<u64>| ns.map_or("-".into(), |ns| format!("{:.2}", ns as f64 / 1e6));
    for kind in &compared.kinds {
        for (side, of) in [("real", &kind.real), ("simulated", &kind.simulated)] {
            println!(
                "    {} at nice {:>3}  {side:<9}  {:6.2} %  off {:>5} x, p50 {:>6} p99 {:>7} ms  late {:>5} x, p50 {:>6} p99 {:>7} ms",
                kind.threads,
                kind.nice,
                of.share_percent.iter().sum::<f64>() / of.share_percent.len() as f64,
                of.offs,
                ms(of.off_p50_ns),
                ms(of.off_p99_ns),
                of.lates,
                ms(of.late_p50_ns),
                ms(of.late_p99_ns)
            );
        }
    }
}
