//! One QEMU process: started, talked to, and surely ended.
//!
//! Nothing of it touches the file system: the guest's memory is a sealed memfd that this process made and
//! QEMU maps; monitor, console and the lab's port are socket pairs. So there is no file to leave behind, and
//! the memory stays readable whatever QEMU does. The process dies with its parent, by its own request to the
//! kernel and by the warden.

mod accelerator;
mod command;
mod console;
mod memory;
mod monitor;

use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Child;
use std::time::{Duration, Instant};

use reprieve_linux::proc::ProcRoot;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags};

pub use accelerator::{Chosen, choose};
pub use command::{Accel, Disk, Hypervisor, MachineSpec, version};
pub use console::console_tail;
pub use memory::GuestMemory;

use crate::Result;
use crate::error::{ConsoleTail, VmError, plain};
use crate::host::{Guard, Host};
use console::Console;
use monitor::Monitor;

/// How long QEMU may take to end after it closed its monitor.
const END_LIMIT: Duration = Duration::from_secs(2);

/// A running machine. Dropping it kills the process and waits for it.
pub struct Machine {
    child: Child,
    console: Console,
    monitor: Option<Monitor>,
    /// The other end of the guest's virtio-serial port.
    pub port: UnixStream,
    /// The guest's memory.
    pub memory: GuestMemory,
    /// Thread ids of the vCPUs, in order.
    pub vcpu_tids: Vec<i32>,
    /// Dropped last, when the process is gone.
    _guard: Guard,
}

impl Machine {
    /// Starts a machine; its guest begins to boot at once.
    pub fn start(spec: &MachineSpec, host: &Host) -> Result<Machine> {
        let memory = GuestMemory::new(spec.memory_bytes)?;
        let pair = || UnixStream::pair().map_err(VmError::io("making a socket pair"));
        let (monitor, monitor_end) = pair()?;
        let (console, console_end) = pair()?;
        let (port, port_end) = pair()?;
        let ends: [OwnedFd; 4] =
            [memory.duplicate()?, monitor_end.into(), console_end.into(), port_end.into()];
        let console = Console::read(console)?;
        let mut child = command::spawn(spec, ends)?;
        let guard = host.guard_process(child.id() as i32).inspect_err(|_| end(&mut child))?;
        let mut machine =
            Machine { child, console, monitor: None, port, memory, vcpu_tids: Vec::new(), _guard: guard };
        machine.greet(monitor).map_err(|error| {
            // A QEMU that refuses its arguments closes the monitor a moment before it ends.
            machine.wait_end(END_LIMIT);
            match (machine.explain(error), spec.accel) {
                (VmError::Guest { problem, console }, Accel::Kvm) => {
                    let way_out = "if KVM does not work here, set guest.accelerator=tcg";
                    VmError::Guest { problem: format!("{problem}: {way_out}"), console }
                }
                (error, _) => error,
            }
        })?;
        Ok(machine)
    }

    /// Process id of QEMU.
    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Threads that are no vCPUs: the main loop, and those that serve devices.
    pub fn other_tids(&self, proc_root: &ProcRoot) -> Result<Vec<i32>> {
        let mut tids = proc_root.thread_ids(self.pid())?;
        tids.retain(|tid| !self.vcpu_tids.contains(tid));
        Ok(tids)
    }

    /// Whether the process has not ended yet.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Adds the console's last lines to an error of the guest, and QEMU's own last words if it has ended. That a process was
    /// gone when the host looked for it is an error of the guest's too, if QEMU is what has ended; and so is a memory that
    /// holds no kernel's state, if the guest has crashed of it.
    pub fn explain(&mut self, error: VmError) -> VmError {
        let of_guest = |problem: String| VmError::Guest { problem, console: ConsoleTail::default() };
        let error = match error {
            // A process that is killed loses its memory and its threads a moment before its end can be waited for.
            VmError::Host(gone) if gone.is_gone() && self.wait_end(END_LIMIT) => of_guest(gone.to_string()),
            // Such a guest may be just about to crash.
            VmError::Introspect(_) if self.wait_end(END_LIMIT) => of_guest(error.to_string()),
            other => other,
        };
        if matches!(error, VmError::Guest { .. }) && self.has_hung_up() {
            // It closes its ends a moment before it is gone.
            self.wait_end(END_LIMIT);
        }
        let ended = self.child.try_wait().ok().flatten();
        let error = match (error, ended) {
            (VmError::Guest { problem, console }, Some(status)) => {
                let mut words = String::new();
                if let Some(stderr) = self.child.stderr.take() {
                    // QEMU has ended, so its pipe ends too; what it could have written is bounded.
                    let _ = stderr.take(4096).read_to_string(&mut words);
                }
                let words = plain(words.trim());
                let said = if words.is_empty() { String::new() } else { format!(": {words}") };
                VmError::Guest { problem: format!("{problem} (QEMU ended, {status}{said})"), console }
            }
            (error, _) => error,
        };
        match error {
            VmError::Guest { problem, console } if console.0.is_empty() => {
                VmError::Guest { problem, console: self.console.tail() }
            }
            other => other,
        }
    }

    /// Whether QEMU has closed its end of the port.
    fn has_hung_up(&self) -> bool {
        let mut port = [PollFd::new(&self.port, PollFlags::empty())];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        rustix::event::poll(&mut port, Some(&now)).is_ok() && port[0].revents().contains(PollFlags::HUP)
    }

    /// Waits until the process has ended by itself; `false` if it has not within the limit.
    pub fn wait_end(&mut self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        self.console.wait_closed(deadline);
        // The console's end closes a moment before the process is gone. A pidfd becomes readable with its end; a
        // process that cannot be opened has ended.
        if let Ok(process) = rustix::process::pidfd_open(Pid::from_child(&self.child), PidfdFlags::empty()) {
            let left = Timespec::try_from(deadline.saturating_duration_since(Instant::now())).ok();
            let _ = rustix::event::poll(&mut [PollFd::new(&process, PollFlags::IN)], left.as_ref());
        }
        !self.is_running()
    }

    /// Where the vCPUs are: of each its instruction pointer, and whether it is halted.
    pub fn positions(&mut self) -> Result<String> {
        let monitor = self.monitor.as_mut().expect("a machine that was started has one");
        monitor.positions()
    }

    fn greet(&mut self, monitor: UnixStream) -> Result<()> {
        let mut monitor = Monitor::greet(monitor)?;
        self.vcpu_tids = monitor.vcpu_tids()?;
        self.monitor = Some(monitor);
        Ok(())
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

/// Kills the process and takes its exit status. Both fail only if it has ended already.
fn end(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}
