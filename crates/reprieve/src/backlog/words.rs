//! The output of `reprieve backlog`: the answer, a table of owners, the open grace period, and what makes the figures uncertain.

use std::collections::BTreeMap;

use reprieve_study::{shown, units};
use reprieve_vm::introspect::backlog::{Backlog, Callback, End, Function, Kind, ListSeen, Open, Owner};
use serde_json::{Value, json};

/// Rows of the table; the rest is summed up.
const ROWS: usize = 20;

/// What was seen, and of whom.
pub struct Seen<'a> {
    /// The guest or the file.
    pub name: &'a str,
    /// Release of its kernel.
    pub release: &'a str,
    /// Whether it is a file.
    pub is_dump: bool,
    /// Whether its clock stands still.
    pub stands_still: bool,
    /// Kernels that lie in its memory besides.
    pub other_kernels: usize,
    /// Its objects that wait.
    pub backlog: &'a Backlog,
    /// Names of the functions that free them.
    pub names: &'a BTreeMap<u64, Function>,
}

impl Seen<'_> {
    /// For people.
    pub fn text(&self) -> String {
        let mut text = format!("{}\n\n", self.answer());
        if !self.backlog.owners.is_empty() {
            text += &format!("{}\n", table(&self.rows()));
        }
        text += &format!("{}\n", grace_period(self.backlog.open.as_ref()));
        let ready: u64 = self.backlog.lists.iter().map(|list| list.ready).sum();
        if ready > 0 {
            text += &format!(
                "The grace period of {} of these objects is over; they wait until their vCPU runs their callbacks.\n",
                grouped(ready)
            );
        }
        text += &format!("Seen in {}, Linux {}.\n", shown::line(self.name), shown::line(self.release));
        for note in self.notes() {
            text += &format!("note: {note}\n");
        }
        text
    }

    /// The answer in a sentence.
    fn answer(&self) -> String {
        let (objects, bytes) = (self.backlog.objects(), self.backlog.bytes());
        let Some(first) = self.backlog.owners.first().filter(|_| objects > 0) else {
            return "no object waits for a grace period".into();
        };
        let size = match bytes {
            0 => "of unknown size".into(),
            bytes => format!("at least {}", units::size(bytes as f64)),
        };
        let (function, _) = self.owner(first);
        let what = match &first.cache {
            Some(cache) => format!("{} ({function})", shown::line(&cache.name)),
            None => format!("freed by {function}"),
        };
        let share = 100.0 * first.objects as f64 / objects as f64;
        let (noun, verb) = if objects == 1 { ("object", "waits") } else { ("objects", "wait") };
        format!("{} {noun}, {size}, {verb} for a grace period; {share:.0} % are {what}", grouped(objects))
    }

    /// The function and the module of an owner.
    fn owner(&self, owner: &Owner) -> (String, String) {
        match owner.callback {
            Callback::KfreeRcu => ("kfree_rcu".into(), "-".into()),
            Callback::Other => ("others".into(), "-".into()),
            Callback::Function(address) => match self.names.get(&address) {
                Some(Function { name, module }) => {
                    (shown::line(name).into(), shown::line(module.as_deref().unwrap_or("kernel")).into())
                }
                None => (format!("{address:#x}"), "?".into()),
            },
        }
    }

    fn rows(&self) -> Vec<[String; 5]> {
        let head = ["owner", "module", "objects", "bytes", "cache"].map(String::from);
        let row = |owner: &Owner| {
            let (function, module) = self.owner(owner);
            let cache = owner.cache.as_ref().map_or("?".into(), |cache| shown::line(&cache.name).into());
            let bytes = owner.bytes().map_or("?".into(), |bytes| units::size(bytes as f64));
            [function, module, grouped(owner.objects), bytes, cache]
        };
        let (shown, rest) = self.backlog.owners.split_at(self.backlog.owners.len().min(ROWS));
        let mut rows: Vec<[String; 5]> = std::iter::once(head).chain(shown.iter().map(row)).collect();
        if !rest.is_empty() {
            let objects = rest.iter().map(|owner| owner.objects).sum();
            let bytes: u64 = rest.iter().filter_map(Owner::bytes).sum();
            let owner = format!("{} more", rest.len());
            rows.push([owner, "-".into(), grouped(objects), units::size(bytes as f64), "-".into()]);
        }
        rows
    }

    /// What makes the figures uncertain.
    fn notes(&self) -> Vec<String> {
        let lists = &self.backlog.lists;
        let mut notes = Vec::new();
        if self.stands_still && !self.is_dump {
            notes.push("the guest's clock stands still: it is paused, or has died".into());
        }
        if self.other_kernels > 0 {
            notes.push(format!(
                "{} more kernels lie in this memory, such as those of earlier boots; this is the first that fits",
                self.other_kernels
            ));
        }
        let changed: Vec<&ListSeen> = lists.iter().filter(|list| !list.is_steady).collect();
        if !changed.is_empty() {
            let found = changed.iter().fold(0_u64, |sum, list| sum.saturating_add(list.found));
            notes.push(format!(
                "lists of CPU {} changed each time they were read: up to {} of these objects may be freed already or counted \
                 wrongly; pause the guest for exact figures",
                cpus(&changed),
                grouped(found)
            ));
        }
        let missing: Vec<&ListSeen> = lists.iter().filter(|list| list.missing > 0).collect();
        if !missing.is_empty() {
            notes.push(format!(
                "{} more callbacks are counted by the kernel and were not found: CPU {} runs them, or has damaged lists",
                grouped(missing.iter().fold(0_u64, |sum, list| sum.saturating_add(list.missing))),
                cpus(&missing)
            ));
        }
        notes.extend(lists.iter().filter_map(ended_badly));
        notes.extend(self.backlog.problems.iter().map(|problem| shown::line(problem).into_owned()));
        notes
    }

    /// For machines: one object.
    pub fn json(&self) -> String {
        let owners: Vec<Value> = self.backlog.owners.iter().map(|owner| self.owner_json(owner)).collect();
        let lists: Vec<Value> = self.backlog.lists.iter().map(list_json).collect();
        let open = self.backlog.open.as_ref().map(|open| {
            let tasks: Vec<Value> =
                open.tasks.iter().map(|task| json!({"pid": task.pid, "name": task.name})).collect();
            json!({"age_ns": open.age_ns, "vcpus": open.vcpus, "tasks": tasks})
        });
        let object = json!({
            "says": self.answer(), "of": self.name, "kernel": self.release, "dump": self.is_dump,
            "stands_still": self.stands_still, "objects": self.backlog.objects(), "known_bytes": self.backlog.bytes(),
            "owners": owners, "open_grace_period": open, "lists": lists, "notes": self.notes(),
        });
        format!("{}\n", shown::json(&object.to_string()))
    }

    fn owner_json(&self, owner: &Owner) -> Value {
        let function = match owner.callback {
            Callback::Function(address) => self.names.get(&address),
            Callback::KfreeRcu | Callback::Other => None,
        };
        let address = match owner.callback {
            Callback::Function(address) => Some(format!("{address:#x}")),
            Callback::KfreeRcu | Callback::Other => None,
        };
        json!({
            "kind": match owner.callback {
                Callback::Function(_) => "callback",
                Callback::KfreeRcu => "kfree_rcu",
                Callback::Other => "others",
            },
            "function": function.map(|function| &function.name),
            "module": function.and_then(|function| function.module.as_ref()),
            "address": address, "objects": owner.objects, "bytes": owner.bytes(),
            "cache": owner.cache.as_ref().map(|cache| &cache.name),
            "object_bytes": owner.cache.as_ref().map(|cache| cache.object_bytes),
        })
    }
}

/// How the grace period stands.
fn grace_period(open: Option<&Open>) -> String {
    let Some(open) = open else { return "No grace period is open.".into() };
    let age = open.age_ns.map_or("of unknown age".into(), |ns| format!("{} old", units::duration(ns as f64)));
    let mut whom = Vec::new();
    if !open.vcpus.is_empty() {
        let vcpus: Vec<String> = open.vcpus.iter().map(usize::to_string).collect();
        whom.push(format!("vCPU {}", vcpus.join(", ")));
    }
    let task =
        |task: &reprieve_vm::introspect::backlog::Task| format!("{} ({})", shown::line(&task.name), task.pid);
    if !open.tasks.is_empty() {
        whom.push(format!(
            "preempted readers: {}",
            open.tasks.iter().map(task).collect::<Vec<_>>().join(", ")
        ));
    }
    match whom.as_slice() {
        [] => format!("The open grace period is {age}; all vCPUs have passed it, and it ends soon."),
        whom => format!("The open grace period is {age} and waits for {}.", whom.join(" and ")),
    }
}

fn ended_badly(list: &ListSeen) -> Option<String> {
    let ListSeen { cpu, kind, found, end, .. } = list;
    let lists = match kind {
        Kind::Callbacks => "callbacks",
        Kind::Bypass => "offloaded callbacks",
        Kind::KfreeRcu => "kfree_rcu",
    };
    let found = grouped(*found);
    match end {
        End::Whole => None,
        End::Cut => {
            Some(format!("the {lists} of CPU {cpu} were not read to their end: more than {found} wait"))
        }
        End::Cycle => Some(format!("the {lists} of CPU {cpu} lead back into themselves: they are damaged")),
        End::Impossible(address) => Some(format!(
            "the {lists} of CPU {cpu} lead to {address:#x}, which is no memory of the guest: they changed, or are damaged; \
             {found} were found before"
        )),
        End::Interrupted => Some(format!("reading the {lists} of CPU {cpu} was ended after {found}")),
    }
}

fn list_json(list: &ListSeen) -> Value {
    let ListSeen { cpu, kind, found, missing, ready, end, is_steady } = list;
    json!({
        "cpu": cpu,
        "list": match kind {
            Kind::Callbacks => "callbacks",
            Kind::Bypass => "bypass",
            Kind::KfreeRcu => "kfree_rcu",
        },
        "found": found, "missing": missing, "ready": ready, "steady": is_steady,
        "end": match end {
            End::Whole => "whole",
            End::Cut => "cut",
            End::Cycle => "cycle",
            End::Impossible(_) => "impossible",
            End::Interrupted => "interrupted",
        },
    })
}

fn cpus(lists: &[&ListSeen]) -> String {
    let mut cpus: Vec<usize> = lists.iter().map(|list| list.cpu).collect();
    cpus.dedup();
    cpus.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")
}

/// A number with commas between its thousands.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Rows in columns; numbers are aligned to the right.
fn table(rows: &[[String; 5]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; 5] = std::array::from_fn(width);
    let line = |row: &[String; 5]| {
        let cells = row.iter().enumerate().map(|(column, cell)| {
            let width = widths[column];
            if matches!(column, 2 | 3) { format!("{cell:>width$}") } else { format!("{cell:width$}") }
        });
        format!("{}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests;
