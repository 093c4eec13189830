//! `reprieve backlog`: what it refuses, and real guests in which owners have planted known numbers of objects: running, paused,
//! and as a dump.

mod support;

use std::path::Path;
use std::process::{Command, Output};

use reprieve_vm::image::{Cache, ImageOptions, KernelChoice, prepare};
use serde_json::{Value, json};
use support::vm::{Begin, Vm};
use support::{Guests, PATIENCE, PROGRAM, guests};

/// Objects of each owner, as the guest's module takes them: two callbacks beside each other would be told apart by one.
const OWN: u64 = 12_000;
const SMALL: u64 = 4_500;
const LARGE: u64 = 1_200;
const FREED: u64 = 3_000;

fn backlog(arguments: &[&str]) -> Output {
    Command::new(PROGRAM).arg("backlog").args(arguments).output().unwrap()
}

fn refusal(arguments: &[&str]) -> (i32, String) {
    let output = backlog(arguments);
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn what_is_no_guest_and_no_memory_is_refused() {
    let own = std::process::id().to_string();
    let (code, said) = refusal(&["--pid", &own]);
    assert!(code == 2 && said.contains("debug-threads=on"), "{code}: {said}");
    let (code, said) = refusal(&["--pid", &own, "--dump", "x"]);
    assert!(code == 2 && said.contains("--dump"), "{code}: {said}");
    let (code, said) = refusal(&["--dump", "/absent/dump"]);
    assert!(code == 1 && said.contains("/absent/dump"), "{code}: {said}");
    let (code, said) = refusal(&["--dump", "/proc/self/exe"]);
    assert!(code == 1 && said.contains("no core") && said.contains("dump-guest-memory"), "{code}: {said}");
    let empty = tempfile::NamedTempFile::new().unwrap();
    empty.as_file().set_len(64 << 20).unwrap();
    let (code, said) = refusal(&["--dump", empty.path().to_str().unwrap()]);
    assert!(code == 1 && said.contains("no Linux kernel with its symbols"), "{code}: {said}");
}

/// A guest whose module has planted its objects.
fn planted(guests: &Guests, kernel: KernelChoice, name: &str) -> Option<Vm> {
    let cache = Cache::new(guests.cache.clone()).unwrap();
    let options = ImageOptions { planted: true, kernel, ..ImageOptions::default() };
    let image = match prepare(&cache, &options, &mut |step| eprintln!("{step}")) {
        Ok(image) => image,
        Err(error) if error.is_missing() && std::env::var_os("REPRIEVE_TEST_REQUIRE_IMAGE").is_none() => {
            eprintln!("skipped: {error}");
            return None;
        }
        Err(error) => panic!("{error}"),
    };
    let mut vm = Vm::spawn_image(image, name, Begin::Boot, None);
    vm.link.wait_ready(PATIENCE).unwrap_or_else(|error| panic!("{error}\n{}", vm.console()));
    let plant = "/sys/kernel/debug/reprieve_planted/plant";
    vm.link
        .append(plant, &format!("{OWN} {SMALL} {LARGE} {FREED}"))
        .unwrap_or_else(|error| panic!("{error}\n{}", vm.console()));
    Some(vm)
}

/// Whether a number is right within 1 %.
fn is_near(value: &Value, expected: u64) -> bool {
    value.as_u64().is_some_and(|value| value.abs_diff(expected) * 100 <= expected)
}

/// What the command says of these arguments; it must have found the planted objects.
fn look(arguments: &[&str]) -> Value {
    let output = backlog(arguments);
    eprintln!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let output = backlog(&[arguments, &["--json"]].concat());
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said: Value = serde_json::from_str(&text).unwrap();
    let owners = said["owners"].as_array().unwrap();
    let owner = |function: &str| -> Vec<&Value> {
        owners.iter().filter(|owner| owner["function"] == function).collect()
    };
    for (function, objects, object_bytes, cache) in [
        ("planted_free_own", OWN, 232..=256, "reprieve_planted"),
        ("planted_free_small", SMALL, 512..=512, "kmalloc"),
        ("planted_free_large", LARGE, 2048..=2048, "kmalloc"),
    ] {
        let [found] = owner(function)[..] else { panic!("{function}: {text}") };
        assert!(is_near(&found["objects"], objects), "{found}");
        assert!(object_bytes.contains(&found["object_bytes"].as_u64().unwrap()), "{found}");
        assert!(found["cache"].as_str().unwrap().starts_with(cache), "{found}");
        assert_eq!(found["module"], "reprieve_planted");
        assert_eq!(
            found["bytes"].as_u64(),
            Some(found["objects"].as_u64().unwrap() * found["object_bytes"].as_u64().unwrap())
        );
    }
    let is_freed = |owner: &&Value| owner["kind"] == "kfree_rcu" && owner["object_bytes"] == 256;
    let freed: u64 = owners.iter().filter(is_freed).map(|owner| owner["objects"].as_u64().unwrap()).sum();
    assert!(is_near(&json!(freed), FREED), "{freed} of kfree_rcu: {text}");
    // The kernel's own functions have names, too.
    let own: Vec<&Value> =
        owners.iter().filter(|owner| owner["kind"] == "callback" && owner["module"].is_null()).collect();
    assert!(own.iter().all(|owner| owner["function"].is_string()), "{own:?}");
    // A reader holds the grace period up: as a holdout while it runs, and as a task once it was preempted.
    let open = &said["open_grace_period"];
    let is_named = |task: &Value| task["name"] == "planted_reader";
    let waits = open["tasks"].as_array().unwrap().iter().any(is_named) || open["vcpus"] != json!([]);
    assert!(waits && open["age_ns"].as_u64().unwrap() > 0, "{open}");
    for list in said["lists"].as_array().unwrap() {
        assert!(list["end"] == "whole" && list["steady"] == true, "{list}");
    }
    said
}

fn check(kernel: KernelChoice, name: &str) {
    let Some(guests) = guests() else { return };
    let Some(mut vm) = planted(&guests, kernel, name) else { return };
    let pid = vm.pid().to_string();
    let running = look(&["--pid", &pid]);
    assert_eq!((&running["stands_still"], &running["dump"]), (&json!(false), &json!(false)));

    vm.ask(json!({"execute": "stop"}));
    let paused = look(&["--pid", &pid]);
    assert_eq!(paused["stands_still"], json!(true));

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("dump");
    dump(&mut vm, &file);
    let dumped = look(&["--dump", file.to_str().unwrap()]);
    for key in ["owners", "open_grace_period", "lists", "kernel"] {
        assert_eq!(dumped[key], paused[key], "the dump is of the paused guest: {key}");
    }
    // The same by its beginning alone, which holds no kernel, or one without its lists.
    let cut = std::fs::File::options().write(true).open(&file).unwrap();
    cut.set_len(8 << 20).unwrap();
    let (code, said) = refusal(&["--dump", file.to_str().unwrap()]);
    assert!(code == 1 && said.contains("dump"), "{code}: {said}");
}

fn dump(vm: &mut Vm, file: &Path) {
    let arguments = json!({"paging": false, "protocol": format!("file:{}", file.display())});
    vm.ask(json!({"execute": "dump-guest-memory", "arguments": arguments}));
}

#[test]
fn planted_objects_are_found_in_the_current_kernel() {
    check(KernelChoice::Current, "planted");
}

#[test]
fn planted_objects_are_found_in_linux_6_12() {
    check(KernelChoice::Series("6.12".into()), "planted-6-12");
}
