//! Applications that do block I/O, beside tasks that compute: the block layer, the threads, and remedies for
//! inactivity.

mod migrater;
mod thread;

use std::rc::Rc;

use reprieve_study::Scenario;
use reprieve_study::scenario::IoSystem;
use reprieve_study::scenario::io::{BlockLayer, Io, IoTask, Step};
use reprieve_study::units::MILLISECOND_NS;

use crate::guest::Guest;
use crate::guest::block::{Block, BlockSpec};
use crate::guest::io::BlockIo;
use crate::guest::pausing::Pausing;
use crate::workload::computing;
use thread::{Cursor, Loop, Thread};

/// Adds the block layer and all tasks to a guest. `number` tells guests with the same application apart.
pub(super) fn add(guest: &mut Guest, scenario: &Scenario, io: &Io, number: u64) {
    let vcpus = scenario.guest.vcpus;
    let traced = io.system == IoSystem::Vmigrater;
    let spec = block_spec(&io.block, traced, io.systems.trace_ns);
    guest.set_io(BlockIo::new(Block::new(spec, vcpus)));
    if io.system == IoSystem::Xballoon {
        guest.set_pausing(Pausing::new(io.systems.cpu_bound_us * 1_000, vcpus));
    }
    let mut disk = Layout::of(io, number);
    let mut threads = 0;
    for task in &io.running().tasks {
        let steps: Rc<[Step]> = task.steps.clone().into();
        for client in 0..io.threads(task) {
            // Clients beyond the task's own threads join later.
            let late = u64::from(client.saturating_sub(task.threads.saturating_sub(1)));
            let begins_ns = if client < task.threads { 0 } else { late * io.join_every_ms * MILLISECOND_NS };
            let reads = disk.cursor(guest, task, io.block.page_kib);
            let writes = task.writes().then(|| disk.cursor(guest, task, io.block.page_kib));
            let thread = Thread::new(thread_loop(io, task, steps.clone()), reads, writes, begins_ns);
            let id = guest.add_program(Box::new(thread), None);
            guest.io_mut().expect("it was set").tasks.push(id);
            threads += 1;
        }
    }
    computing::add(guest, 0..io.computing as usize, io.computing_weight);
    if io.system == IoSystem::Vmigrater {
        migrater::add(guest, vcpus, threads, &io.systems);
    }
}

fn thread_loop(io: &Io, task: &IoTask, steps: Rc<[Step]>) -> Loop {
    Loop {
        steps,
        page_kib: io.block.page_kib,
        call_ns: io.block.call_ns,
        copy_ns_per_kib: io.block.copy_ns_per_kib,
        working_set_kib: task.working_set_kib,
    }
}

fn block_spec(block: &BlockLayer, traced: bool, trace_ns: u64) -> BlockSpec {
    let in_pages = |kib: u64| (kib / block.page_kib) as u32;
    BlockSpec {
        page_bytes: block.page_kib << 10,
        cache_pages: ((block.cache_mib << 10) / block.page_kib) as usize,
        read_ahead_pages: in_pages(block.read_ahead_kib),
        request_pages: in_pages(block.request_kib).max(1),
        ring: block.ring as usize,
        submit_ns: block.submit_ns,
        complete_ns: block.complete_ns,
        traced,
        trace_ns,
    }
}

/// Where files lie on the disk: one after the other, each guest in a part of its own.
struct Layout {
    next: u64,
}

impl Layout {
    fn of(io: &Io, number: u64) -> Layout {
        let part = (io.disk.gib << 30) / u64::from(io.rivals + 1);
        Layout { next: part * number }
    }

    /// A new file of the task, and a position in it.
    fn cursor(&mut self, guest: &mut Guest, task: &IoTask, page_kib: u64) -> Cursor {
        let (start, pages) = (self.next, ((task.file_mib << 10) / page_kib) as u32);
        self.next += task.file_mib << 20;
        Cursor::new(guest.io_mut().expect("it was set").block.add_file(start, pages), pages)
    }
}
