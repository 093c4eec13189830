//! QEMU's monitor: what we ask QEMU itself, not its guest.

use std::io::BufReader;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use qapi::Qmp;
use qapi::qmp::{CpuInfoFast, human_monitor_command, query_cpus_fast};

use crate::Result;
use crate::error::{ConsoleTail, VmError};

/// How long QEMU may take to answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(20);

/// The line to a QEMU that has greeted.
pub struct Monitor(Qmp<qapi::Stream<BufReader<UnixStream>, UnixStream>>);

impl Monitor {
    /// Waits for QEMU's greeting, and answers it.
    pub fn greet(stream: UnixStream) -> Result<Monitor> {
        stream.set_read_timeout(Some(ANSWER_LIMIT)).map_err(VmError::io("preparing QEMU's monitor"))?;
        let writer = stream.try_clone().map_err(VmError::io("preparing QEMU's monitor"))?;
        let mut qmp = Qmp::new(qapi::Stream::new(BufReader::new(stream), writer));
        qmp.handshake().map_err(failed)?;
        Ok(Monitor(qmp))
    }

    /// Thread ids of the vCPUs, in order.
    pub fn vcpu_tids(&mut self) -> Result<Vec<i32>> {
        let mut threads = Vec::new();
        for cpu in self.0.execute(&query_cpus_fast {}).map_err(failed)? {
            let CpuInfoFast::x86_64(cpu) = cpu else {
                return Err(failed("it emulates another architecture"));
            };
            threads.push((cpu.cpu_index, cpu.thread_id as i32));
        }
        threads.sort_unstable();
        Ok(threads.into_iter().map(|(_, tid)| tid).collect())
    }

    /// Where the vCPUs are: of each its instruction pointer, and whether it is halted.
    pub fn positions(&mut self) -> Result<String> {
        let command = human_monitor_command { command_line: "info registers -a".into(), cpu_index: None };
        let registers = self.0.execute(&command).map_err(failed)?;
        Ok(positions(&registers))
    }
}

fn failed(error: impl ToString) -> VmError {
    let problem = format!("QEMU's monitor: {}", error.to_string());
    VmError::Guest { problem, console: ConsoleTail::default() }
}

/// Only these two words are taken: the text is for people, and whatever else it has may change.
fn positions(registers: &str) -> String {
    let mut vcpus: Vec<String> = Vec::new();
    for word in registers.split_ascii_whitespace() {
        if let Some(address) = word.strip_prefix("RIP=") {
            vcpus.push(format!("0x{address}"));
        } else if let (Some(vcpu), "HLT=1") = (vcpus.last_mut(), word) {
            vcpu.push_str(" (halted)");
        }
    }
    vcpus.join(", ")
}

#[cfg(test)]
mod tests {
    #[test]
    fn positions_are_taken_from_all_that_qemu_says() {
        let said = "\r\nCPU#0\r\nRAX=0000000000000001 RBX=0000000000000000\r\n\
                    RIP=ffffffff81c0a4fb RFL=00000246 [---Z-P-] CPL=0 II=0 A20=1 SMM=0 HLT=1\r\n\
                    CPU#1\r\nRIP=ffffffff8106b2c1 RFL=00000246 [---Z-P-] CPL=0 II=0 A20=1 SMM=0 HLT=0\r\n";
        assert_eq!(super::positions(said), "0xffffffff81c0a4fb (halted), 0xffffffff8106b2c1");
        assert_eq!(super::positions(""), "");
    }
}
