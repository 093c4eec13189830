//! Builds what guests with block I/O need: their disk, and what the host does for them.

use reprieve_study::Scenario;
use reprieve_study::scenario::io::{DiskKind, Io};
use reprieve_study::scenario::{Condition, IoSystem};
use reprieve_study::units::{MILLISECOND_NS, SECOND_NS};

use crate::device::drive::{Drive, Hdd, HddSpec, Ssd};
use crate::device::{Disk, DiskSpec, fair};
use crate::random::Stream;
use crate::sched::cfs::Cfs;
use crate::sched::{Entity, Tunables};
use crate::world::World;

/// Bytes of a megabyte, as disks are sold.
const MB: u64 = 1_000_000;

/// Adds the disk, and sets up the host's part of the I/O system under test. `guests` run the application.
pub(super) fn add(world: &mut World, scenario: &Scenario, condition: &Condition, io: &Io, guests: &[usize]) {
    let disk = Disk::new(disk_spec(io), guests.len(), world.queue());
    world.set_disk(disk);
    guests.iter().for_each(|guest| world.add_io_guest(*guest));
    match io.system {
        IoSystem::Plain | IoSystem::Vmigrater => {}
        IoSystem::Vslicer => {
            let (slice_ns, sharing) = slice(scenario, condition, io);
            let (run_ns, every_ns) = micro_slice(slice_ns, sharing, u64::from(io.systems.micro_slices));
            guests.iter().for_each(|guest| world.cut_slices(*guest, run_ns, every_ns));
        }
        IoSystem::Xballoon => world.account_pauses_every(io.systems.accounting_ms * MILLISECOND_NS),
    }
}

/// Lets each neighbour begin at a random time.
pub(super) fn stagger(world: &mut World, host: usize, neighbours: &[Entity], io: &Io, seed: u64) {
    let mut stream = Stream::new(seed, "neighbour", 0);
    for entity in neighbours {
        world.begin_at(host, *entity, stream.within(0, io.stagger_ms * MILLISECOND_NS));
    }
}

/// The length of a CFS slice, rounded up to a tick, and the number of vCPUs that share a pCPU.
fn slice(scenario: &Scenario, condition: &Condition, io: &Io) -> (u64, u64) {
    let vcpus = scenario.guest.vcpus as u64;
    let pcpus = scenario.host.pcpus_for(scenario.guest.vcpus) as u64;
    let busy = super::busy_vcpus(scenario, condition, pcpus);
    let sharing = (vcpus * u64::from(1 + io.rivals) + busy).div_ceil(pcpus).max(1);
    let tunables = Tunables::linux(pcpus as usize, scenario.host.hz);
    let slice_ns = Cfs::new(&tunables).equal_slice_ns(sharing as usize);
    (slice_ns.next_multiple_of(tunables.tick_ns()), sharing)
}

/// The length of a micro-slice, and the time from the start of one to the start of the next. A round of `sharing`
/// slices has `cuts` of them.
fn micro_slice(slice_ns: u64, sharing: u64, cuts: u64) -> (u64, u64) {
    ((slice_ns / cuts).max(1), (slice_ns * sharing / cuts).max(1))
}

fn disk_spec(io: &Io) -> DiskSpec {
    let disk = &io.disk;
    let rotation_ns = 60 * SECOND_NS / disk.rpm;
    let drive = match disk.kind {
        DiskKind::Ssd => Drive::Ssd(Ssd::new(disk.access_us * 1_000, disk.mb_per_s * MB)),
        DiskKind::Hdd => Drive::Hdd(Hdd::new(HddSpec {
            seek_min_ns: disk.seek_min_us * 1_000,
            seek_max_ns: disk.seek_max_us * 1_000,
            rotation_ns,
            track_bytes: disk.track_kib << 10,
            buffer_bytes: disk.buffer_kib << 10,
            interface_per_s: disk.interface_mb_per_s * MB,
            bytes: disk.gib << 30,
        })),
    };
    let depth = match disk.kind {
        DiskKind::Ssd => disk.queue_depth as usize,
        DiskKind::Hdd => 1,
    };
    let half_ns = io.block.virtual_ns / 2;
    DiskSpec {
        drive,
        depth,
        fair: fair::Params {
            slice_ns: disk.slice_ms * MILLISECOND_NS,
            idle_ns: disk.idle_us * 1_000,
            weights: disk.weights.clone(),
        },
        entry_ns: half_ns,
        exit_ns: io.block.virtual_ns - half_ns,
    }
}
