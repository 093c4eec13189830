//! Selects the tasks that the user wants managed: `--only cgroup=`, `user=`, `comm=`.
//!
//! A task passes if, of each kind that is used, at least one condition holds. This module also tells whether this
//! process has the capabilities that the daemon uses.

use std::str::FromStr;

use crate::proc::{ProcRoot, TaskIdentity};
use crate::{Error, Result};

/// One condition on a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// The task is in this cgroup or below it; the path is as in `/proc/PID/cgroup`.
    Cgroup(String),
    /// The task belongs to this user: an id, or a name in `/etc/passwd`.
    User(String),
    /// The thread has this name, of which the kernel keeps 15 bytes.
    Comm(String),
}

impl FromStr for Condition {
    type Err = Error;

    fn from_str(text: &str) -> Result<Condition> {
        match text.split_once('=') {
            Some(("cgroup", path)) if path.starts_with('/') => {
                Ok(Condition::Cgroup(path.trim_end_matches('/').into()))
            }
            Some(("user", user)) if !user.is_empty() => Ok(Condition::User(user.into())),
            // Cut and decoded as a name read from `/proc` is.
            Some(("comm", comm)) if !comm.is_empty() => {
                let bytes = &comm.as_bytes()[..comm.len().min(15)];
                Ok(Condition::Comm(String::from_utf8_lossy(bytes).into_owned()))
            }
            _ => Err(Error::invalid("condition", text, "use cgroup=/PATH, user=NAME or comm=NAME")),
        }
    }
}

/// All conditions together. Without conditions every task passes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    cgroups: Vec<String>,
    /// The users whose tasks may pass; empty means all users.
    pub users: Vec<u32>,
    comms: Vec<String>,
}

impl Filter {
    /// Combines the conditions. `passwd` is the text of `/etc/passwd`, in which names of users are looked up.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a user that is neither a number nor in `passwd`.
    pub fn new(conditions: &[Condition], passwd: &str) -> Result<Filter> {
        let mut filter = Filter::default();
        for condition in conditions {
            match condition {
                Condition::Cgroup(path) => filter.cgroups.push(path.clone()),
                Condition::Comm(comm) => filter.comms.push(comm.clone()),
                Condition::User(user) => {
                    let number = user.parse().ok().or_else(|| number_of(user, passwd));
                    let unknown =
                        || Error::invalid("user", user, "use a user's id, or a name in /etc/passwd");
                    filter.users.push(number.ok_or_else(unknown)?);
                }
            }
        }
        Ok(filter)
    }

    /// Whether the task passes the filter.
    pub fn passes(&self, task: &TaskIdentity) -> bool {
        let below = |path: &String| {
            let of_task = task.cgroups.lines().filter_map(|line| line.splitn(3, ':').nth(2));
            of_task.into_iter().any(|own| {
                own.strip_prefix(path.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            })
        };
        (self.cgroups.is_empty() || self.cgroups.iter().any(below))
            && (self.users.is_empty() || self.users.contains(&task.user))
            && (self.comms.is_empty() || self.comms.contains(&task.comm))
    }
}

/// The id of a user named in `passwd`.
fn number_of(name: &str, passwd: &str) -> Option<u32> {
    let line = passwd.lines().find(|line| line.split(':').next() == Some(name))?;
    line.split(':').nth(2)?.parse().ok()
}

/// Whether this process may change the affinity of any user's tasks: CAP_SYS_NICE, capability 23 (capabilities(7)).
pub fn may_move_all(root: &ProcRoot) -> bool {
    has_capability(root, 23)
}

/// Whether this process may lock any amount of memory: CAP_IPC_LOCK, capability 14.
pub fn may_lock_all(root: &ProcRoot) -> bool {
    has_capability(root, 14)
}

fn has_capability(root: &ProcRoot, number: u32) -> bool {
    let status = root.read_task("self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let bits = effective.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
    bits.is_some_and(|bits| bits & (1 << number) != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc::fake::FakeProc;

    fn task(comm: &str, user: u32, cgroups: &str) -> TaskIdentity {
        TaskIdentity { comm: comm.into(), user, mask: Default::default(), cgroups: cgroups.into() }
    }

    fn filter(conditions: &[&str]) -> Filter {
        let conditions: Vec<Condition> = conditions.iter().map(|text| text.parse().unwrap()).collect();
        Filter::new(&conditions, "root:x:0:0::/root:/bin/sh\nmongo:x:105:1::/:/bin/false\n").unwrap()
    }

    #[test]
    fn one_condition_of_each_kind_must_hold() {
        let task = task("fio", 105, "4:cpu:/x\n0::/db.slice/mongo\n");
        for (conditions, passes) in [
            (&[][..], true),
            (&["comm=fio"], true),
            (&["comm=dd", "comm=fio"], true),
            (&["comm=fio", "user=mongo"], true),
            (&["comm=fio", "user=root"], false),
            (&["cgroup=/db.slice"], true),
            (&["cgroup=/db.slice/"], true),
            (&["cgroup=/db"], false),
            (&["user=105"], true),
        ] {
            assert_eq!(filter(conditions).passes(&task), passes, "{conditions:?}");
        }
        // The kernel keeps 15 bytes: seven of these letters, and half of the eighth.
        let (name, kept) = ("ö".repeat(8), "ö".repeat(7) + "\u{fffd}");
        assert!(filter(&[&format!("comm={name}")]).passes(&self::task(&kept, 0, "")));
    }

    #[test]
    fn other_conditions_are_refused() {
        for text in ["", "fio", "comm=", "user=", "cgroup=relative", "pid=4"] {
            assert!(text.parse::<Condition>().is_err(), "{text:?}");
        }
        assert!(Filter::new(&[Condition::User("nobody-here".into())], "").is_err());
    }

    #[test]
    fn the_capability_is_read() {
        let proc = FakeProc::new();
        assert!(!may_move_all(&proc.root));
        proc.put("self/status", "CapEff:\t0000000000800000\n");
        assert!(may_move_all(&proc.root) && !may_lock_all(&proc.root));
        proc.put("self/status", "CapEff:\t00000000007fffff\n");
        assert!(!may_move_all(&proc.root) && may_lock_all(&proc.root));
    }
}
