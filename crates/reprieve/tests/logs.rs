//! Published kernel logs: `records/logs/README.md` says of each what `reprieve explain --dmesg` says, and that stays true.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

fn logs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../records/logs")
}

/// The table's rows as (log, what explain says).
fn table() -> Vec<(String, String)> {
    let readme = std::fs::read_to_string(logs().join("README.md")).unwrap();
    let rows = readme.lines().filter(|line| line.starts_with("| ") && line.contains("https://"));
    let cells = |row: &str| row.split('|').map(|cell| cell.trim().to_string()).collect::<Vec<_>>();
    rows.map(cells).map(|cells| (cells[1].clone(), cells[cells.len() - 2].clone())).collect()
}

fn first_line(log: &str) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_reprieve"));
    let output =
        command.args(["explain", "--dmesg"]).arg(logs().join(format!("{log}.log"))).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().next().unwrap_or_default().to_string()
}

#[test]
fn explain_says_of_each_published_log_what_the_table_says() {
    let table = table();
    for (log, says) in &table {
        assert_eq!(first_line(log), *says, "{log}");
    }
    let in_table: BTreeSet<String> = table.into_iter().map(|(log, _)| format!("{log}.log")).collect();
    let names =
        std::fs::read_dir(logs()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let on_disk: BTreeSet<String> = names.filter(|name| name.ends_with(".log")).collect();
    assert_eq!(in_table, on_disk);
    assert!(on_disk.len() >= 20);
}
