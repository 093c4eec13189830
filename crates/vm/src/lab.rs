//! One run: a fresh guest is booted, put under its condition, watched, and ended.

use std::time::Duration;

use reprieve_study::scenario::{BadScenario, Clones, Memory, Observe, PlannedRun, Postmark};
use reprieve_study::units::{MIB, SECOND_NS};
use reprieve_study::{Condition, GroundKind, Observation, Provenance, Scenario, Workload};

use crate::analysis::{self, RunLeft};
use crate::bursts::Timing;
use crate::cpu_account::{CpuAccount, Spent};
use crate::image::GuestImage;
use crate::introspect::{Layout, Ram, Reader};
use crate::link::{self, Hello, Link};
use crate::qemu::{Chosen, Machine, MachineSpec};
use crate::stimulus::Stimulus;
use crate::watch::{Sampler, Watcher};
use crate::{Host, Result, Step, VmError, fio, parameters};

/// A workload of fixed size must end within this time.
const FIXED_WORK_LIMIT: Duration = Duration::from_secs(900);
/// A workload must stop within this time: starved vCPUs have a backlog to work off.
pub(crate) const STOP_LIMIT: Duration = Duration::from_secs(120);

/// Everything that runs have in common.
pub struct Lab {
    /// The host's handles.
    pub host: Host,
    /// Kernel, initial file system and type information of the guests.
    pub image: GuestImage,
    /// How guests are executed.
    pub chosen: Chosen,
    /// QEMU's version.
    pub qemu_version: String,
    /// pCPUs that this process may use.
    pub pcpus: Vec<usize>,
}

/// A guest that has booted: the machine, the line to its runner, and what it said.
pub struct Booted {
    /// The process.
    pub machine: Machine,
    /// The line to the runner.
    pub link: Link,
    /// What the guest told about itself.
    pub hello: Hello,
    /// Why it was started a second time, if it was.
    pub note: Option<String>,
}

impl Lab {
    /// The machine that a scenario asks for.
    pub fn machine_spec(&self, scenario: &Scenario) -> MachineSpec {
        MachineSpec {
            vcpus: scenario.guest.vcpus,
            memory_bytes: scenario.guest.memory_mib * MIB,
            kernel: self.image.kernel.vmlinuz.clone(),
            initramfs: self.image.initramfs.clone(),
            append: [scenario.guest.append.clone(), scenario.guest.rcu.command_line()]
                .join(" ")
                .trim()
                .into(),
            accel: self.chosen.accel,
            disk: scenario.workload.fio().map(fio::disk),
            kaslr: false,
            hypervisor: None,
        }
    }

    /// Boots a guest and pins its vCPUs. One that has not printed a word when its time is up, or whose kernel panics, is started
    /// once more, and that is noted: emulated guests sometimes hang like this (`qemu::command` tells why), one in some hundreds of Linux
    /// 6.12 panicked while it patched its own code, and a long plan should not end by that.
    pub fn boot(&self, spec: &MachineSpec, pcpus: &[usize], limit: Duration) -> Result<Booted> {
        let (booted, note) = twice_if_lost(|| self.boot_once(spec, pcpus, limit))?;
        Ok(Booted { note, ..booted })
    }

    fn boot_once(&self, spec: &MachineSpec, pcpus: &[usize], limit: Duration) -> Result<Booted> {
        let mut machine = Machine::start(spec, &self.host)?;
        let port = machine.port.try_clone().map_err(VmError::io("preparing the guest's port"))?;
        let mut link = Link::new(port, self.host.interrupt.clone())?;
        let hello = link.wait_ready(limit).map_err(|error| match machine.explain(error) {
            VmError::Guest { console, .. } if console.0.is_empty() && link.is_late() => {
                let vcpus = machine.positions().unwrap_or_else(|error| error.to_string());
                VmError::Silent { limit, vcpus }
            }
            error => error,
        })?;
        believe(&hello, spec.vcpus)?;
        Stimulus::pin(&machine, pcpus).map_err(|error| machine.explain(error))?;
        Ok(Booted { machine, link, hello, note: None })
    }

    /// A reader of a booted guest's state.
    pub fn reader(&self, booted: &Booted) -> Result<Reader> {
        let mut ram = Ram::map(&booted.machine.memory)?;
        let hello = &booted.hello;
        let memory_bytes = booted.machine.memory.bytes;
        let layout = Layout::find(
            &mut ram,
            &self.image.btf,
            &hello.symbols,
            &hello.release,
            hello.vcpus,
            memory_bytes,
        )?;
        Ok(Reader::new(ram, layout))
    }

    /// Does one run. `step` is told what happens.
    pub fn run(&self, planned: &PlannedRun, step: &mut Step) -> Result<Observation> {
        let (name, scenario) = (&planned.condition, &planned.scenario);
        let condition = &scenario.conditions[name];
        let pcpus = Stimulus::pcpus(name, condition, &self.pcpus)?;
        let spec = self.machine_spec(scenario);
        let limit = Duration::from_millis(scenario.guest.boot_limit_ms);
        step("boots");
        let mut booted = self.boot(&spec, &pcpus, limit)?;
        let settings = parameters::taken(&mut booted.link, &spec.append);
        let settings = settings.map_err(|error| booted.machine.explain(error))?;
        let mut neighbours = Vec::new();
        for _ in 0..condition.neighbours {
            step("boots a neighbour");
            neighbours.push(self.boot(&spec, &pcpus, limit)?);
        }
        let work = Work { lab: self, scenario, condition, pcpus: &pcpus };
        let measured = match scenario.workload {
            Workload::DeleteFree { .. } => work.run_program(planned, &mut booted, &mut neighbours, step),
            _ => work.measure(planned, &mut booted, &mut neighbours, step),
        };
        let mut observation = measured.map_err(|error| booted.machine.explain(error))?;
        parameters::leave_out_unaccounted(&settings, &mut observation);
        observation.provenance.settings = settings.lines;
        Ok(observation)
    }
}

/// Refuses a guest that says what cannot be of its machine: whatever is read by its word would lack vCPUs.
fn believe(hello: &Hello, vcpus: usize) -> Result<()> {
    if (1..=vcpus).contains(&hello.vcpus) {
        return Ok(());
    }
    let said = hello.vcpus;
    Err(VmError::guest(format!("the guest says that it has {said} vCPUs online, of the machine's {vcpus}")))
}

/// What Linux prints when it gives up.
const PANIC: &str = "Kernel panic - not syncing";

/// What `start` gives; of a second start also why there was one.
fn twice_if_lost<T>(mut start: impl FnMut() -> Result<T>) -> Result<(T, Option<String>)> {
    match start() {
        Err(silent @ VmError::Silent { .. }) => {
            Ok((start()?, Some(format!("started a second time, for at first {silent}"))))
        }
        Err(VmError::Guest { console, .. }) if console.0.iter().any(|line| line.contains(PANIC)) => {
            Ok((start()?, Some("started again: its kernel panicked during the first boot".into())))
        }
        first => Ok((first?, None)),
    }
}

/// One measurement in progress.
pub(crate) struct Work<'a> {
    /// What runs have in common.
    pub lab: &'a Lab,
    /// The scenario of this run.
    pub scenario: &'a Scenario,
    /// Under which condition.
    pub condition: &'a Condition,
    /// pCPUs that the vCPUs are pinned to, in turn.
    pub pcpus: &'a [usize],
}

impl Work<'_> {
    fn measure(
        &self,
        planned: &PlannedRun,
        booted: &mut Booted,
        neighbours: &mut [Booted],
        step: &mut Step,
    ) -> Result<Observation> {
        let lab = self.lab;
        let reader = if self.condition.unobserved { None } else { Some(lab.reader(booted)?) };
        self.start_neighbours(neighbours)?;
        let timing = Timing::from_now(self.scenario.run.seed);
        let mut stimulus = Stimulus::apply(self.condition, &booted.machine, self.pcpus, &lab.host, timing)?;
        self.boost(&mut stimulus, booted)?;
        let (workload, plan) = (&self.scenario.workload, &self.scenario.run);
        let fixed_size = matches!(workload, Workload::Postmark { .. });
        booted.link.start(&start_command(workload, self.scenario, &self.scenario.observe)?)?;
        if !fixed_size {
            step("warms up");
            booted.link.let_work(Duration::from_millis(plan.warmup_ms))?;
        }
        step("is measured");
        let (first, mut notes) = (booted.link.mark()?, Vec::new());
        let sampler = match reader {
            Some(reader) => Some(self.watch(&booted.machine, reader, &mut notes)?),
            None => None,
        };
        let account = self.cpu_account(booted, neighbours, &stimulus)?;
        let lent = stimulus.boosted();
        stimulus.pause(self.condition, &booted.machine, account.opened)?;
        match fixed_size {
            true => booted.link.wait_finished(FIXED_WORK_LIMIT)?,
            false => booted.link.let_work(Duration::from_millis(plan.window_ms))?,
        }
        let spent = account.close(&lab.host.proc_root)?;
        let boosts = lent.zip(stimulus.boosted());
        notes.extend(stimulus.end_boosts()?);
        let recording = sampler.map(Sampler::finish);
        let last = booted.link.mark()?;
        link::between(&first, &last)?;
        drop(stimulus);
        self.still_there(neighbours, account.opened.elapsed())?;
        step("stops");
        let outcome = booted.link.stop(STOP_LIMIT)?;
        let observation = analysis::observe(RunLeft {
            condition: &planned.condition,
            repetition: planned.repetition,
            workload,
            quotas: &self.condition.quota,
            boosts,
            recording,
            marks: (first, last),
            outcome,
            look_ns: SECOND_NS / u64::from(self.scenario.observe.sample_hz),
            provenance: self.provenance(booted, spent, notes),
        });
        Ok(Observation { case: planned.case.clone(), sweep: planned.sweep.clone(), ..observation })
    }

    fn boost(&self, stimulus: &mut Stimulus, booted: &Booted) -> Result<()> {
        if self.condition.remedies.is_empty() {
            return Ok(());
        }
        let (guest, settings) = (self.lab.reader(booted)?, &self.scenario.host.boost);
        let on = (&booted.machine, &self.lab.host);
        stimulus.boost(self.condition, settings, self.scenario.run.seed, guest, on)
    }

    /// Starts what keeps all vCPUs of the neighbours busy: the memory microbenchmark.
    pub fn start_neighbours(&self, neighbours: &mut [Booted]) -> Result<()> {
        let observe = Observe { sync_every_ms: 0, ..self.scenario.observe.clone() };
        let command = start_command(&Workload::Memory(Memory::default()), self.scenario, &observe)?;
        neighbours.iter_mut().try_for_each(|neighbour| neighbour.link.start(&command))
    }

    /// Opens the host's books of this run.
    pub fn cpu_account(
        &self,
        booted: &Booted,
        neighbours: &[Booted],
        stimulus: &Stimulus,
    ) -> Result<CpuAccount> {
        let machine = &booted.machine;
        let neighbours = neighbours.iter().map(|neighbour| neighbour.machine.pid());
        let ours: Vec<i32> = stimulus.hog_pids().into_iter().chain(neighbours).collect();
        let used = Stimulus::used(machine.vcpu_tids.len(), self.pcpus);
        CpuAccount::open(&self.lab.host.proc_root, machine.pid(), &machine.vcpu_tids, used, &ours)
    }

    /// An error if a neighbour has ended before the window did.
    pub fn still_there(&self, neighbours: &mut [Booted], window: Duration) -> Result<()> {
        match neighbours.iter_mut().all(|neighbour| neighbour.machine.is_running()) {
            true => Ok(()),
            false => Err(VmError::late("outlive the window as a neighbour", window)),
        }
    }

    fn watch(&self, machine: &Machine, reader: Reader, notes: &mut Vec<String>) -> Result<Sampler> {
        let (watcher, note) = Watcher::open(&self.lab.host.proc_root, machine.pid(), &machine.vcpu_tids)?;
        notes.extend(note);
        Sampler::start(reader, watcher, self.scenario.observe.sample_hz, self.scenario.run.seed)
    }

    /// Where and how the run was measured.
    pub fn provenance(&self, booted: &Booted, spent: Spent, mut notes: Vec<String>) -> Provenance {
        let lab = self.lab;
        notes.extend(booted.note.clone());
        Provenance {
            ground: format!("vm, QEMU {}", lab.qemu_version),
            accelerator: lab.chosen.accel.name().into(),
            accelerator_reason: lab.chosen.reason.clone(),
            kernel: booted.hello.release.clone(),
            host_kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            host_pcpus: lab.pcpus.len(),
            seed: self.scenario.run.seed,
            window_ns: spent.window_ns,
            foreign_cpu_percent: spent.foreign_share * 100.0,
            vcpus: spent.vcpus,
            notes,
            ..Provenance::default()
        }
    }
}

/// The line that starts a workload in a guest.
fn start_command(workload: &Workload, scenario: &Scenario, observe: &Observe) -> Result<String, BadScenario> {
    let guest_bytes = scenario.guest.memory_mib * MIB;
    let command = match workload {
        Workload::Memory(memory) => {
            let Memory { object_bytes, burst, pause_us, backlog_limit_mib, computing, .. } = memory;
            let limit = if *backlog_limit_mib == 0 { guest_bytes / 2 } else { backlog_limit_mib * MIB };
            let workers = memory.workers_on(scenario.guest.vcpus);
            let beside = beside(workers, *computing);
            format!(
                "memory workers={workers} object_bytes={object_bytes} burst={burst} pause_us={pause_us} \
                 max_backlog_bytes={limit}{beside}"
            )
        }
        Workload::Clone(Clones { workers, namespaces, stop_below_mib, computing }) => {
            let stop_below_bytes = stop_below_mib * MIB;
            let namespaces = namespaces.join(",");
            let beside = beside(*workers as usize, *computing);
            format!(
                "clone workers={workers} stop_below_bytes={stop_below_bytes} namespaces={namespaces}{beside}"
            )
        }
        Workload::Postmark(Postmark {
            processes,
            files,
            transactions,
            size_min_bytes,
            size_max_bytes,
            ..
        }) => format!(
            "postmark processes={processes} files={files} transactions={transactions} \
             size_min={size_min_bytes} size_max={size_max_bytes} seed={}",
            scenario.run.seed & 0x7fff_ffff
        ),
        // `delete-free` and `fio` are started by modules of their own.
        other => return Err(other.not_on(GroundKind::Vm)),
    };
    Ok(match observe.sync_every_ms {
        0 => command,
        // With one CPU membarrier has nobody to wait for: its latency is not synchronize_rcu's.
        _ if scenario.guest.vcpus == 1 => command,
        every_ms => format!("{command} sync_every_us={}", every_ms * 1000),
    })
}

/// The options for tasks that compute on the vCPUs after those of the workers.
fn beside(workers: usize, computing: u32) -> String {
    match computing {
        0 => String::new(),
        _ => format!(" computing={computing} computing_from={workers}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ConsoleTail;

    #[test]
    fn a_guest_has_no_vcpus_that_its_machine_has_not() {
        let of = |vcpus| believe(&Hello { vcpus, ..Hello::default() }, 2).is_ok();
        assert_eq!([0, 1, 2, 3, usize::MAX].map(of), [false, true, true, false, false]);
    }

    #[test]
    fn only_what_is_silent_or_panics_is_started_again_and_only_once() {
        let silent = || VmError::Silent { limit: Duration::from_secs(5), vcpus: "0x10".into() };
        let all = |mut answers: Vec<Result<u8>>| {
            let said = twice_if_lost(|| answers.remove(0));
            (said.map_err(|error| error.to_string()), answers.len())
        };
        assert_eq!(all(vec![Ok(1), Ok(2)]), (Ok((1, None)), 1));
        assert_eq!(all(vec![Err(VmError::Interrupted), Ok(2)]), (Err("interrupted".into()), 1));
        assert_eq!(all(vec![Err(silent()), Err(silent()), Ok(3)]), (Err(silent().to_string()), 1));
        let (Ok((2, Some(note))), 0) = all(vec![Err(silent()), Ok(2)]) else {
            panic!("it was to be started again")
        };
        assert!(note.contains("did not boot within 5 s") && note.contains("0x10"), "{note}");
        let guest = |console: &str| VmError::Guest {
            problem: "ended".into(),
            console: ConsoleTail(vec![console.into()]),
        };
        let (Ok((3, Some(note))), 0) = all(vec![Err(guest("[1.4] Kernel panic - not syncing: x")), Ok(3)])
        else {
            panic!("it was to be started again")
        };
        assert!(note.contains("panicked"), "{note}");
        assert!(matches!(all(vec![Err(guest("init: no such file")), Ok(3)]), (Err(_), 1)));
    }
}
