//! One boot: a machine boots Xen, dom0 starts the domUs, one of them measures, and the results come out through the
//! debug port.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use reprieve_study::scenario::PlannedRun;
use reprieve_study::{Observation, Provenance};

use super::analysis::{self, RunLeft};
use super::image::XenImage;
use super::report::Report;
use super::settings::Settings;
use super::trace::Records;
use crate::error::{VmError, plain};
use crate::link::Link;
use crate::qemu::{Accel, Hypervisor, Machine, MachineSpec};
use crate::{Host, Result, Step};

/// dom0 says something at least so often while it boots and starts domUs, also on a busy host.
const SILENCE_LIMIT: Duration = Duration::from_secs(300);
/// And it is done after so many times that, besides what it measures: else it could say something for ever.
const SILENCES: u32 = 12;
/// An emulated second takes at most so many real ones: it takes one or two where the host is not busy.
const SLOWNESS: u32 = 8;
/// Most that is taken from a machine of what it sends under one name, in bytes.
const CARRIED_BYTES_MAX: usize = 64 << 20;

/// What dom0 sends, by name; the last one ends a run.
const PHASE: &str = "phase";
const FAILED: &str = "failed";
const INFO: &str = "info";
const CONSOLE: &str = "console";
const TRACE: &str = "trace";
const END: &str = "end";

/// Everything that runs have in common.
pub struct XenLab {
    /// The host's handles.
    pub host: Host,
    /// What is booted.
    pub image: XenImage,
    /// QEMU's version.
    pub qemu_version: String,
}

/// What a machine sent, whole items by name.
type Carried = BTreeMap<String, Vec<u8>>;

impl XenLab {
    /// Does one boot, which serves several repetitions of a condition: all those that [`Settings::repetitions`] says, this
    /// run's among them. `step` is told what happens.
    ///
    /// # Errors
    /// A machine that does not boot, hangs or dies, a domU that crashes, results that are not whole; each with the last
    /// lines of a console.
    pub fn boot(&self, planned: &PlannedRun, step: &mut Step) -> Result<Vec<Observation>> {
        let settings = Settings::of(planned)?;
        step("boots Xen");
        let carried = self.carry(planned, &settings, step)?;
        let text = |name: &str| String::from_utf8_lossy(carried.get(name).map_or(&[], Vec::as_slice));
        let xen_version = info(&text(INFO), "xen_version").unwrap_or_else(|| "unknown".into());
        let log = carried.get(CONSOLE).map_or(&[][..], Vec::as_slice);
        let reports = Report::parse(log, settings.repetitions.len())?;
        let records = match carried.get(TRACE) {
            Some(packed) => Some(Records::unpack(packed).map_err(VmError::guest)?),
            None if settings.trace => return Err(VmError::guest("dom0 sent no trace")),
            None => None,
        };
        let observe = |(repetition, report): (u32, Report)| {
            let observation = analysis::observe(RunLeft {
                condition: &planned.condition,
                repetition,
                spinners: planned.scenario.conditions[&planned.condition].spinners,
                report,
                records: records.as_ref(),
                provenance: self.provenance(planned, &xen_version),
            });
            Observation { case: planned.case.clone(), sweep: planned.sweep.clone(), ..observation }
        };
        Ok(settings.repetitions.zip(reports).map(observe).collect())
    }

    /// Runs a machine to its end and collects what it sends.
    fn carry(&self, planned: &PlannedRun, settings: &Settings, step: &mut Step) -> Result<Carried> {
        let mut machine = Machine::start(&self.machine_spec(settings), &self.host)?;
        let port = machine.port.try_clone().map_err(VmError::io("preparing the machine's port"))?;
        let mut link = Link::new(port, self.host.interrupt.clone())?;
        let run = &planned.scenario.run;
        let segments = settings.repetitions.len() as u32;
        let measured = Duration::from_millis(run.warmup_ms + run.window_ms) * SLOWNESS * segments;
        let limits =
            Limits { measuring: SILENCE_LIMIT + measured, whole: SILENCE_LIMIT * SILENCES + measured };
        let carried = collect(&mut link, limits, step);
        let carried = carried.and_then(|carried| check_scheduler(planned, carried));
        carried.map_err(|error| machine.explain(error))
    }

    /// The machine that a run takes.
    pub fn machine_spec(&self, settings: &Settings) -> MachineSpec {
        MachineSpec {
            vcpus: settings.pcpus,
            memory_bytes: settings.memory_bytes,
            kernel: self.image.vmlinux.clone(),
            initramfs: self.image.initramfs.clone(),
            append: settings.dom0.clone(),
            accel: Accel::Counted { seed: settings.seed },
            disk: None,
            kaslr: false,
            hypervisor: Some(Hypervisor {
                image: self.image.hypervisor.clone(),
                options: settings.xen.clone(),
            }),
        }
    }

    fn provenance(&self, planned: &PlannedRun, xen_version: &str) -> Provenance {
        let host_pcpus = reprieve_linux::proc::allowed_cpus().map_or(0, |cpus| cpus.len());
        // While no pCPU runs, QEMU's main loop moves the clock on, and it may look while a pCPU is just about to halt.
        let spinners = planned.scenario.conditions[&planned.condition].spinners;
        let note = "pCPUs that fall idle: the run may differ by microseconds when it is repeated";
        let notes = (spinners == 0).then(|| note.to_string());
        Provenance {
            notes: notes.into_iter().collect(),
            ground: format!("xen, Xen {xen_version} ({}), QEMU {}", self.image.xen, self.qemu_version),
            accelerator: Accel::Counted { seed: 0 }.name().into(),
            accelerator_reason:
                "time is counted in instructions; a run whose pCPUs are never all idle gives the same again"
                    .into(),
            kernel: self.image.release.clone(),
            host_kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            host_pcpus,
            seed: planned.scenario.run.seed,
            ..Provenance::default()
        }
    }
}

/// How long a machine may take.
struct Limits {
    /// In silence, while it measures.
    measuring: Duration,
    /// For everything.
    whole: Duration,
}

/// Takes frames until the last item. Each item is some frames and an empty one.
fn collect(link: &mut Link, limits: Limits, step: &mut Step) -> Result<Carried> {
    let (mut whole, mut open) = (Carried::new(), Carried::new());
    let (mut doing, mut limit) = ("boot Xen and dom0".to_string(), SILENCE_LIMIT);
    let began = Instant::now();
    loop {
        if began.elapsed() > limits.whole {
            return Err(VmError::late("end its run", limits.whole));
        }
        let (name, bytes) = link.frame(&doing, limit)?;
        if ![PHASE, FAILED, INFO, CONSOLE, TRACE, END].contains(&name.as_str()) {
            return Err(VmError::guest(format!("dom0 sent {name:?}, which it never does")));
        }
        let item = open.entry(name.clone()).or_default();
        if !bytes.is_empty() {
            item.extend(bytes);
            if item.len() > CARRIED_BYTES_MAX {
                return Err(VmError::guest(format!(
                    "dom0 sent more than {CARRIED_BYTES_MAX} bytes of {name}"
                )));
            }
            continue;
        }
        let item = open.remove(&name).unwrap_or_default();
        match name.as_str() {
            PHASE => {
                doing = plain(&String::from_utf8_lossy(&item));
                step(&doing);
                // Only one phase has a length of its own.
                limit = if doing == "measures" { limits.measuring } else { SILENCE_LIMIT };
                doing = format!("get past the phase {doing:?}");
            }
            FAILED => return Err(VmError::guest(format!("dom0 failed: {}", String::from_utf8_lossy(&item)))),
            END => return Ok(whole),
            _ => {
                whole.insert(name, item);
            }
        }
    }
}

/// Xen falls back to its default for a scheduler that it does not know, and only says so on its console.
fn check_scheduler(planned: &PlannedRun, carried: Carried) -> Result<Carried> {
    let text = String::from_utf8_lossy(carried.get(INFO).map_or(&[], Vec::as_slice));
    let (wanted, runs) = (planned.scenario.host.scheduler.name(), info(&text, "xen_scheduler"));
    match runs {
        Some(runs) if runs.eq_ignore_ascii_case(wanted) => Ok(carried),
        other => Err(VmError::guest(format!(
            "Xen runs the scheduler {:?} instead of {wanted}",
            other.as_deref().unwrap_or("of no name")
        ))),
    }
}

/// A value of what `xl info` says.
fn info(text: &str, key: &str) -> Option<String> {
    let values = text.lines().filter_map(|line| line.split_once(':'));
    values.into_iter().find(|(name, _)| name.trim() == key).map(|(_, value)| plain(value.trim()))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use reprieve_linux::signals::Interrupt;

    use super::*;

    /// What is collected of these frames, and the phases that were told.
    fn collected(frames: &[(&str, &str)]) -> (Result<Carried>, Vec<String>) {
        let (mut machine, host) = UnixStream::pair().unwrap();
        let mut link = Link::new(host, Interrupt::manual().unwrap()).unwrap();
        for (name, bytes) in frames {
            machine.write_all(format!("{name} {}\n{bytes}", bytes.len()).as_bytes()).unwrap();
        }
        drop(machine);
        let mut phases = Vec::new();
        let limits = Limits { measuring: SILENCE_LIMIT, whole: SILENCE_LIMIT };
        let result = collect(&mut link, limits, &mut |phase| phases.push(phase.to_string()));
        (result, phases)
    }

    #[test]
    fn items_are_put_together_from_frames_until_the_end() {
        let frames = [
            ("phase", "measures"),
            ("phase", ""),
            ("console", "a\n"),
            ("console", "b"),
            ("console", ""),
            ("end", ""),
        ];
        let (carried, phases) = collected(&frames);
        assert_eq!(carried.unwrap()["console"], b"a\nb");
        assert_eq!(phases, ["measures"]);
    }

    #[test]
    fn a_machine_that_never_stops_sending_is_late() {
        let (mut machine, host) = UnixStream::pair().unwrap();
        let mut link = Link::new(host, Interrupt::manual().unwrap()).unwrap();
        let writer =
            std::thread::spawn(move || while machine.write_all(b"console 1\nxconsole 0\n").is_ok() {});
        let limits = Limits { measuring: SILENCE_LIMIT, whole: Duration::from_millis(100) };
        let late = collect(&mut link, limits, &mut |_| ()).unwrap_err().to_string();
        assert!(late.contains("did not end its run"), "{late}");
        drop(link);
        writer.join().unwrap();
    }

    #[test]
    fn a_machine_that_fails_or_ends_early_is_an_error_that_says_where() {
        let error = |frames: &[(&str, &str)]| collected(frames).0.unwrap_err().to_string();
        assert!(
            error(&[("failed", "xl create\x1b[1m"), ("failed", "")])
                .starts_with(r"dom0 failed: xl create\x1b[1m")
        );
        let ended = error(&[("phase", "measures"), ("phase", ""), ("console", "a")]);
        assert!(ended.contains("ended before it could get past the phase \"measures\""), "{ended}");
        assert!(error(&[]).contains("boot Xen and dom0"));
        assert!(error(&[("other", "")]).contains("which it never does"));
    }

    #[test]
    fn info_is_found_by_its_key() {
        let text = "xen_scheduler          : credit2\nxen_version            : 4.17.7\n";
        assert_eq!(info(text, "xen_version").unwrap(), "4.17.7");
        assert!(info(text, "version").is_none());
    }
}
