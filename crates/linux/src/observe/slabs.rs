//! The slab caches of the running kernel. Source: slabinfo(5).

use crate::proc::ProcRoot;
use crate::{Error, Result};

/// A slab cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slab {
    /// Its name.
    pub cache: String,
    /// Objects in use.
    pub objects: u64,
    /// Size of an object, bytes.
    pub bytes: u64,
}

/// All slab caches.
///
/// # Errors
/// The list cannot be read.
pub fn slabs(root: &ProcRoot) -> Result<Vec<Slab>> {
    let path = root.path().join("slabinfo");
    let text = std::fs::read_to_string(&path).map_err(|e| Error::io("read", &path, e, "run as root"))?;
    Ok(text.lines().filter_map(slab).collect())
}

fn slab(line: &str) -> Option<Slab> {
    let (cache, objects, bytes) = fields(line)?;
    Some(Slab { cache: cache.to_string(), objects, bytes })
}

/// The cache of a line, its objects in use and the size of one, bytes. The two lines of the head have none.
pub(super) fn fields(line: &str) -> Option<(&str, u64, u64)> {
    let mut words = line.split_ascii_whitespace();
    let cache = words.next()?;
    let objects = words.next()?.parse().ok()?;
    let bytes = words.nth(1)?.parse().ok()?;
    Some((cache, objects, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_but_the_head_is_a_cache() {
        let text = "slabinfo - version: 2.1\n# name            <active_objs> <num_objs> <objsize> <objperslab>\n\
                    dentry             1200   1260    192   21    1 : tunables    0    0    0\nx\n";
        let found: Vec<Slab> = text.lines().filter_map(slab).collect();
        assert_eq!(found, [Slab { cache: "dentry".into(), objects: 1_200, bytes: 192 }]);
    }
}
