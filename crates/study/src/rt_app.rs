//! rt-app's JSON as a scenario of the simulator, with the workload [`Tasks`]. What the simulator does not model is refused by name. Settings
//! of logs, calibration, page locking, priority inheritance and buffers are ignored.
//!
//! Source of the meaning of each key: `doc/tutorial.txt` of rt-app.

mod json;

use indexmap::IndexMap;

use crate::scenario::{BadScenario, Phase, Result, TaskStep, TaskThreads, Tasks};
use json::Json;

/// Keys of `global` that change nothing in a simulation: rt-app's logs, its calibration, and its memory.
const IGNORED: [&str; 15] = [
    "calibration",
    "cumulative_slack",
    "frag",
    "ftrace",
    "gnuplot",
    "io_device",
    "lock_pages",
    "log_basename",
    "log_size",
    "logdir",
    "logsize",
    "mem_buffer_size",
    "pi_enabled",
    "resources",
    "max_nbr_tgs",
];
/// Events that the simulator does not model, and why.
const REFUSED: [(&str, &str); 15] = [
    ("runtime", "rt-app holds its time fixed on any CPU; write run"),
    ("membind_nodes", "memory has one node"),
    ("mem", "memory has no bandwidth there"),
    ("iorun", "the simulator's disks are those of the workload io"),
    ("lock", "there are no mutexes"),
    ("unlock", "there are no mutexes"),
    ("wait", "there are no condition variables; write suspend"),
    ("signal", "there are no condition variables; write resume"),
    ("broad", "there are no condition variables; write resume"),
    ("sync", "there are no condition variables"),
    ("barrier", "there are no barriers"),
    ("fork", "a task cannot be begun by another one; give it a delay"),
    ("util_min", "uclamp acts on the CPU's frequency, which is fixed"),
    ("util_max", "uclamp acts on the CPU's frequency, which is fixed"),
    ("dl-", "there is no deadline scheduling in a simulated guest"),
];

type Object = [(String, Json)];

/// The text of a scenario of that name, for the simulator, with its tasks alone and beside neighbours.
///
/// # Errors
/// It is no such JSON, or has a key that cannot be simulated; the key says where.
pub fn scenario(name: &str, text: &str) -> Result<String> {
    // As json-c and rt-app's own files have them: comments, and commas before a closing bracket.
    let mut text = text.to_string();
    json_strip_comments::strip(&mut text).map_err(|error| BadScenario::new("JSON", error.to_string()))?;
    let parsed: Json =
        serde_json::from_str(&text).map_err(|error| BadScenario::new("JSON", error.to_string()))?;
    let root = object("JSON", &parsed)?;
    once("JSON", root, |_| true)?;
    let find = |wanted: &str| root.iter().find(|(key, _)| key == wanted).map(|(_, value)| value);
    let known = ["tasks", "global", "resources"];
    if let Some((key, _)) = root.iter().find(|(key, _)| !known.contains(&key.as_str())) {
        return Err(BadScenario::new(key, "unknown; rt-app has tasks and global"));
    }
    let global = Global::read(find("global"))?;
    let tasks = find("tasks").ok_or_else(|| BadScenario::new("tasks", "there are none"))?;
    let mut all = Tasks::default();
    for (name, value) in object("tasks", tasks)? {
        let key = format!("tasks.{name}");
        let Some(task) = task(&key, name, object(&key, value)?, &global)? else { continue };
        if all.tasks.insert(name.clone(), task).is_some() {
            return Err(BadScenario::new(key, "is there twice"));
        }
    }
    refuse_shared_timers(&all)?;
    Ok(written(name, &all, &global))
}

/// Refuses keys that are there twice, of those that are no events.
fn once(at: &str, fields: &Object, is_such: impl Fn(&str) -> bool) -> Result {
    let is_twice = |(number, (key, _)): &(usize, &(String, Json))| {
        is_such(key) && fields[..*number].iter().any(|(earlier, _)| earlier == key)
    };
    match fields.iter().enumerate().find(is_twice) {
        Some((_, (key, _))) => Err(BadScenario::new(format!("{at}.{key}"), "is there twice")),
        None => Ok(()),
    }
}

/// Refuses timers that several threads of rt-app would share: a simulated thread has timers of its own.
fn refuse_shared_timers(all: &Tasks) -> Result {
    let mut owners: IndexMap<&str, &str> = IndexMap::new();
    for (task, threads) in &all.tasks {
        let steps = threads.phases.iter().flat_map(|phase| &phase.steps);
        let names = steps.filter_map(|step| match step {
            TaskStep::Timer { name, .. } if !name.starts_with("unique") => Some(name.as_str()),
            _ => None,
        });
        for name in names {
            let owner = *owners.entry(name).or_insert(task);
            if owner != task || threads.threads > 1 {
                let problem = format!(
                    "several threads share the timer {name:?}; give it a name that begins with unique"
                );
                return Err(BadScenario::new(format!("tasks.{task}"), problem));
            }
        }
    }
    Ok(())
}

/// What all tasks have.
struct Global {
    policy: String,
    window_ms: Option<u64>,
}

impl Global {
    fn read(value: Option<&Json>) -> Result<Global> {
        let mut global = Global { policy: "SCHED_OTHER".into(), window_ms: None };
        let Some(value) = value else { return Ok(global) };
        once("global", object("global", value)?, |_| true)?;
        for (key, value) in object("global", value)? {
            let key_at = format!("global.{key}");
            match (key.as_str(), value) {
                // For as long as it takes: the scenario's window is then the usual one.
                ("duration", Json::Whole(-1)) => {}
                ("duration", value) => global.window_ms = Some(whole(&key_at, value, 1, 3_600)? * 1_000),
                ("default_policy", value) => global.policy = text_of(&key_at, value)?.into(),
                (key, _) if IGNORED.contains(&key) => {}
                _ => return Err(BadScenario::new(key_at, "unknown")),
            }
        }
        Ok(global)
    }
}

/// A task; `None` if it has no threads.
fn task(key: &str, name: &str, fields: &Object, global: &Global) -> Result<Option<TaskThreads>> {
    const OWN: [&str; 7] = ["instance", "delay", "loop", "policy", "priority", "cpus", "phases"];
    once(key, fields, |field| OWN.contains(&field))?;
    if name.chars().any(char::is_control) {
        return Err(BadScenario::new(key, "its name has a control character"));
    }
    let mut task = TaskThreads::default();
    let (mut policy, mut priority) = (global.policy.clone(), 0);
    let (mut own, mut phases) = (Vec::new(), None);
    for (field, value) in fields {
        let at = format!("{key}.{field}");
        match field.as_str() {
            "instance" => task.threads = whole(&at, value, 0, 256)? as u32,
            "delay" => task.delay_us = whole(&at, value, 0, 60_000_000)?,
            "loop" => task.loops = loops(&at, value)?.unwrap_or(0),
            "policy" => policy = text_of(&at, value)?.into(),
            "priority" => priority = signed(&at, value, -20, 19)?,
            "cpus" => task.vcpus = cpus(&at, value)?,
            "phases" => phases = Some(object(&at, value)?),
            _ => own.push((field.clone(), value.clone())),
        }
    }
    task.weight = weight(key, &policy, priority)?;
    task.phases = match (phases, own.first()) {
        (Some(_), Some((field, _))) => {
            return Err(BadScenario::new(
                format!("{key}.{field}"),
                "stands beside phases; write it into one of them",
            ));
        }
        (Some(phases), None) => {
            let read = |(phase, value): &(String, Json)| {
                let key = format!("{key}.phases.{phase}");
                self::phase(&key, name, object(&key, value)?)
            };
            phases.iter().map(read).collect::<Result<_>>()?
        }
        (None, _) => vec![phase(key, name, &own)?],
    };
    Ok((task.threads > 0).then_some(task))
}

fn phase(key: &str, task: &str, fields: &Object) -> Result<Phase> {
    once(key, fields, |field| field == "loop")?;
    let mut phase = Phase::default();
    for (field, value) in fields {
        let at = format!("{key}.{field}");
        match field.as_str() {
            "loop" => {
                let endless =
                    || BadScenario::new(&at, "a phase without end; give the task's loop -1 in its place");
                phase.loops = loops(&at, value)?.ok_or_else(endless)?;
            }
            "cpus" | "policy" | "priority" | "taskgroup" => {
                return Err(BadScenario::new(
                    at,
                    "does not change between phases of a simulated task; write it into the task",
                ));
            }
            _ => phase.steps.extend(step(&at, task, field, value)?),
        }
    }
    Ok(phase)
}

/// An event. Its key may have a suffix that makes it different from others: `run0`, `timer_b`.
fn step(key: &str, task: &str, field: &str, value: &Json) -> Result<Option<TaskStep>> {
    let us = |most| whole(key, value, 0, most);
    let is = |event: &str| field.starts_with(event);
    if let Some((_, why)) = REFUSED.iter().find(|(event, _)| is(event)) {
        return Err(BadScenario::new(key, format!("is not simulated: {why}")));
    }
    Ok(match field {
        "taskgroup" if *value == Json::Text(String::new()) => None,
        _ if is("run") => Some(us(10_000_000)?).filter(|us| *us > 0).map(|us| TaskStep::Run { us }),
        _ if is("sleep") => Some(us(60_000_000)?).filter(|us| *us > 0).map(|us| TaskStep::Sleep { us }),
        _ if is("timer") => Some(timer(key, object(key, value)?)?),
        _ if is("suspend") => match text_of(key, value)? {
            "" => Some(TaskStep::Suspend {}),
            name if name == task => Some(TaskStep::Suspend {}),
            other => {
                return Err(BadScenario::new(
                    key,
                    format!("a task can suspend itself alone, and not {other}"),
                ));
            }
        },
        _ if is("resume") => Some(TaskStep::Resume { task: text_of(key, value)?.into() }),
        _ if is("yield") => Some(TaskStep::Yield {}),
        _ => return Err(BadScenario::new(key, "unknown, or not simulated")),
    })
}

fn timer(key: &str, fields: &Object) -> Result<TaskStep> {
    let (mut name, mut period_us, mut absolute) = (String::new(), 0, false);
    for (field, value) in fields {
        let at = format!("{key}.{field}");
        match field.as_str() {
            "ref" => name = text_of(&at, value)?.into(),
            "period" => period_us = whole(&at, value, 1, 60_000_000)?,
            "mode" => {
                absolute = match text_of(&at, value)? {
                    "absolute" => true,
                    "relative" => false,
                    other => {
                        return Err(BadScenario::new(
                            at,
                            format!("{other:?} is neither relative nor absolute"),
                        ));
                    }
                }
            }
            _ => return Err(BadScenario::new(at, "unknown")),
        }
    }
    match period_us {
        0 => Err(BadScenario::new(key, "has no period")),
        _ => Ok(TaskStep::Timer { name, period_us, absolute }),
    }
}

/// The weight of a nice value: each step is a fourth more or a fifth less, as in Linux's table, which differs by at most 2 %.
fn weight(key: &str, policy: &str, nice: i64) -> Result<u32> {
    match policy {
        "SCHED_IDLE" => Ok(3),
        "SCHED_OTHER" => {
            let mut weight = 1024_u64 << 20;
            for _ in 0..nice.unsigned_abs() {
                weight = if nice < 0 { weight * 5 / 4 } else { weight * 4 / 5 };
            }
            Ok(((weight + (1 << 19)) >> 20) as u32)
        }
        other => Err(BadScenario::new(
            format!("{key}.policy"),
            format!("{other} is not simulated in a guest; SCHED_OTHER and SCHED_IDLE are"),
        )),
    }
}

fn cpus(key: &str, value: &Json) -> Result<Vec<u32>> {
    let Json::List(items) = value else { return Err(BadScenario::new(key, format!("{value} is no list"))) };
    items.iter().map(|item| Ok(whole(key, item, 0, 1023)? as u32)).collect()
}

/// A number of loops; `None` for -1, without end.
fn loops(key: &str, value: &Json) -> Result<Option<u32>> {
    match value {
        Json::Whole(-1) => Ok(None),
        value => whole(key, value, 1, 100_000_000).map(|loops| Some(loops as u32)),
    }
}

fn object<'a>(key: &str, value: &'a Json) -> Result<&'a Object> {
    match value {
        Json::Object(fields) => Ok(fields),
        other => Err(BadScenario::new(key, format!("{other} is no object"))),
    }
}

fn text_of<'a>(key: &str, value: &'a Json) -> Result<&'a str> {
    match value {
        Json::Text(text) => Ok(text),
        other => Err(BadScenario::new(key, format!("{other} is no text"))),
    }
}

fn signed(key: &str, value: &Json, low: i64, high: i64) -> Result<i64> {
    match value {
        Json::Whole(number) if (low..=high).contains(number) => Ok(*number),
        other => Err(BadScenario::new(key, format!("{other} is no whole number within {low} to {high}"))),
    }
}

fn whole(key: &str, value: &Json, low: i64, high: i64) -> Result<u64> {
    signed(key, value, low, high).map(i64::unsigned_abs)
}

/// The scenario's text.
fn written(name: &str, all: &Tasks, global: &Global) -> String {
    let name: String =
        name.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' }).collect();
    let quoted = |text: &str| toml::Value::from(text).to_string();
    let vcpus = all.tasks.values().flat_map(|task| &task.vcpus).max().map_or(2, |last| (last + 1).max(2));
    let mut text = format!(
        "# Made from rt-app's JSON. The guest's vCPUs and the conditions are a proposal.\nname = {}\ntitle = \"Tasks of rt-app\"\n\n[run]\n\
         warmup_ms = 0\nwindow_ms = {}\n\n[guest]\nvcpus = {vcpus}\n\n[conditions.baseline]\nlabel = \"each vCPU has a pCPU to itself\"\n\n\
         [conditions.overcommitted]\nlabel = \"neighbour VMs with busy vCPUs\"\novercommit = 2.0\n\n[workload]\nkind = \"tasks\"\n",
        quoted(&name),
        global.window_ms.unwrap_or(10_000)
    );
    for (name, task) in &all.tasks {
        let at = format!("workload.tasks.{}", quoted(name));
        text.push_str(&format!("\n[{at}]\n"));
        let fields: IndexMap<&str, toml::Value> = IndexMap::from([
            ("threads", task.threads.into()),
            ("vcpus", task.vcpus.clone().into()),
            ("weight", task.weight.into()),
            ("delay_us", (task.delay_us as i64).into()),
            ("loops", task.loops.into()),
        ]);
        for (key, value) in &fields {
            text.push_str(&format!("{key} = {value}\n"));
        }
        for phase in &task.phases {
            let steps = phase.steps.iter().map(|step| {
                let step = toml::Value::try_from(step).expect("a step has a form in TOML");
                format!("    {step},\n")
            });
            let steps: String = steps.collect();
            text.push_str(&format!("[[{at}.phases]]\nloops = {}\nsteps = [\n{steps}]\n", phase.loops));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::overrides;
    use crate::scenario::Workload;

    fn tasks(text: &str) -> IndexMap<String, TaskThreads> {
        let written = scenario("x", text).unwrap();
        let Workload::Tasks(tasks) = overrides::read(&written, None, &[]).unwrap().workload else { panic!() };
        tasks.tasks
    }

    #[test]
    fn keys_that_are_written_twice_are_two_events_and_phases_keep_their_order() {
        let tasks = tasks(
            r#"{/* sound */ "tasks": {
                "out": {"priority": -19, "loop": -1, "run": 275, "resume": "track", "run": 4725, "suspend": "out",},
                "track": {"cpus": [0, 2], "instance": 2, "policy": "SCHED_IDLE", "phases": {
                    "b": {"loop": 4, "timer0": {"ref": "unique", "period": 6000, "mode": "absolute"}},
                    "a": {"suspend": ""}}}},
              "global": {"duration": 6, "calibration": "CPU0", "default_policy": "SCHED_OTHER"}}"#,
        );
        let run = |us| TaskStep::Run { us };
        let out = &tasks["out"];
        let resume = TaskStep::Resume { task: "track".into() };
        assert_eq!(out.phases[0].steps, [run(275), resume, run(4725), TaskStep::Suspend {}]);
        assert!((70_000..72_000).contains(&out.weight) && out.loops == 0, "{out:?}");
        let track = &tasks["track"];
        assert_eq!((track.threads, &track.vcpus[..], track.weight), (2, &[0, 2][..], 3));
        let timer = TaskStep::Timer { name: "unique".into(), period_us: 6000, absolute: true };
        assert_eq!(track.phases[0], Phase { loops: 4, steps: vec![timer] });
        assert_eq!(track.phases[1].steps, [TaskStep::Suspend {}]);
    }

    #[test]
    fn what_is_not_simulated_is_refused_by_name() {
        let refused = |field: &str| {
            let text = format!(r#"{{"tasks": {{"t": {{"run": 10, {field}}}}}}}"#);
            scenario("x", &text).unwrap_err().to_string()
        };
        for (field, said) in [
            (r#""lock": "m""#, "tasks.t.lock: is not simulated: there are no mutexes"),
            (r#""runtime": 5"#, "tasks.t.runtime: is not simulated"),
            (r#""policy": "SCHED_FIFO""#, "tasks.t.policy: SCHED_FIFO is not simulated"),
            (r#""sleep": -4"#, "tasks.t.sleep: -4 is no whole number within 0 to 60000000"),
            (r#""suspend": "other""#, "tasks.t.suspend: a task can suspend itself alone"),
            (r#""phases": {}"#, "tasks.t.run: stands beside phases"),
            (r#""spin": 1"#, "tasks.t.spin: unknown"),
            (r#""loop": 2, "loop": 3"#, "tasks.t.loop: is there twice"),
            (
                r#""instance": 2, "timer": {"ref": "a", "period": 9}"#,
                "tasks.t: several threads share the timer \"a\"",
            ),
        ] {
            let told = refused(field);
            assert!(told.starts_with(said), "{told}");
        }
        let unknown = scenario("x", r#"{"tasks": {"t": {"run": 1}}, "gobal": {}}"#).unwrap_err();
        assert_eq!(unknown.key, "gobal");
    }
}
