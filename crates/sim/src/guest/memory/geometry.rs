//! What a slab of a cache is: its order, its number of objects, and how many slabs CPUs and the node keep.
//!
//! Source: Lameter's SLUB, as tuned in Linux 6.1; the sysfs files of `/sys/kernel/slab` show the same figures.

use super::FRAME_BYTES;

/// Highest order of a slab if a lower one will do (`slub_max_order`).
const HIGHEST_ORDER: u8 = 3;
/// A slab wastes at most 1/16 of itself; if no order does that, 1/8; then 1/4.
const WASTE_FRACTIONS: [u32; 3] = [16, 8, 4];

/// The shape of a cache's slabs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Geometry {
    /// Bytes from one object to the next.
    pub object_bytes: u32,
    /// Order of a slab.
    pub order: u8,
    /// Order of a slab when memory is too fragmented for that: the lowest that holds an object.
    pub least_order: u8,
    /// Slabs that a CPU keeps in its partial list.
    pub cpu_slabs: u32,
    /// Slabs in the node's list from which on an empty slab is given back.
    pub node_slabs: u32,
}

impl Geometry {
    /// For objects of that size, up to 8 KiB, on a machine of so many CPUs.
    pub fn new(object_bytes: u32, cpus: usize) -> Geometry {
        let bytes = object_bytes.next_multiple_of(8);
        let order = slab_order(bytes, cpus);
        // Objects that a CPU's partial slabs should have, if each is half used.
        let cpu_objects = match bytes {
            4096.. => 6,
            1024.. => 24,
            256.. => 52,
            _ => 120,
        };
        Geometry {
            object_bytes: bytes,
            order,
            least_order: order_of(bytes),
            cpu_slabs: (cpu_objects * 2u32).div_ceil(u32::from(objects(order, bytes))),
            node_slabs: (bytes.ilog2() / 2).clamp(5, 10),
        }
    }

    /// Objects of a slab of that order.
    pub fn objects(&self, order: u8) -> u16 {
        objects(order, self.object_bytes)
    }
}

/// The lowest order of block that holds so many bytes.
pub(super) fn order_of(bytes: u32) -> u8 {
    bytes.div_ceil(FRAME_BYTES as u32).next_power_of_two().ilog2() as u8
}

fn objects(order: u8, bytes: u32) -> u16 {
    (((FRAME_BYTES as u32) << order) / bytes) as u16
}

/// The lowest order that holds enough objects, more on a machine with many CPUs, and wastes little; with fewer
/// objects if none does.
fn slab_order(bytes: u32, cpus: usize) -> u8 {
    let enough = 4 * (cpus.ilog2() + 2);
    let most = u32::from(objects(HIGHEST_ORDER, bytes));
    for wanted in (2..=enough.min(most)).rev() {
        for fraction in WASTE_FRACTIONS {
            let fits = |&order: &u8| {
                let slab = (FRAME_BYTES as u32) << order;
                slab % bytes <= slab / fraction
            };
            if let Some(order) = (order_of(wanted * bytes)..=HIGHEST_ORDER).find(fits) {
                return order;
            }
        }
    }
    order_of(bytes)
}
