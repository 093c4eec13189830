//! The scripts of a sweep for Slurm: an array job of as many tasks as there are shards, and a job that merges once all of them have
//! ended, however they did. A task that is requeued goes on where its predecessor ended, and one that fails or is cancelled leaves runs
//! that the next submission does.
//!
//! Source: sbatch(1) of Slurm 22.05, `--array`, `--requeue`, `--dependency=afterany`. `sacct`, which many sites do not have, is not
//! needed.

use std::path::Path;
use std::time::Duration;

/// The most tasks of an array: many sites allow no more than 1,001 (MaxArraySize).
pub const MOST_TASKS: u64 = 1_000;
/// About how long a task should take: long against the start of one, short enough to lose little with it.
const TASK: Duration = Duration::from_secs(300);

/// The number of tasks for so many runs of about that length.
pub fn tasks(runs: u64, each: Duration) -> u64 {
    let all_s = runs as f64 * each.as_secs_f64();
    ((all_s / TASK.as_secs_f64()).ceil() as u64).clamp(1, MOST_TASKS.min(runs.max(1)))
}

/// Whether Slurm and the shell take this path as it is, without quotes and patterns.
pub fn is_plain(path: &Path) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/_.,:@+=-".contains(&byte);
    path.is_absolute() && path.to_str().is_some_and(|text| text.bytes().all(is_plain))
}

/// What the scripts are made from. Paths are plain: see [`is_plain`].
#[derive(Clone, Debug)]
pub struct Job<'a> {
    /// The program.
    pub program: &'a Path,
    /// The sweep's folder, as every node sees it.
    pub folder: &'a Path,
    /// The folder of Slurm's logs.
    pub logs: &'a Path,
    /// The number of tasks.
    pub tasks: u64,
    /// Tasks that run at a time, if that is limited.
    pub throttle: Option<u32>,
}

impl Job<'_> {
    /// The script of the array.
    pub fn array(&self) -> String {
        let Job { program, folder, logs, tasks, throttle } = self;
        let throttle = throttle.map_or(String::new(), |most| format!("%{most}"));
        format!(
            "#!/bin/sh\n\
             #SBATCH --job-name=reprieve-sweep\n\
             #SBATCH --array=1-{tasks}{throttle}\n\
             #SBATCH --requeue\n\
             #SBATCH --open-mode=append\n\
             #SBATCH --cpus-per-task=1\n\
             #SBATCH --output={logs}/%A_%a.log\n\
             exec {program} sweep run {folder} --shard \"$SLURM_ARRAY_TASK_ID/{tasks}\"\n",
            logs = logs.display(),
            program = program.display(),
            folder = folder.display(),
        )
    }

    /// The script that merges.
    pub fn merge(&self) -> String {
        let Job { program, folder, logs, .. } = self;
        format!(
            "#!/bin/sh\n\
             #SBATCH --job-name=reprieve-merge\n\
             #SBATCH --requeue\n\
             #SBATCH --open-mode=append\n\
             #SBATCH --cpus-per-task=1\n\
             #SBATCH --output={logs}/merge-%j.log\n\
             exec {program} sweep merge {folder}\n",
            logs = logs.display(),
            program = program.display(),
            folder = folder.display(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_take_minutes_and_an_array_has_at_most_a_thousand() {
        let ms = Duration::from_millis;
        assert_eq!(tasks(2_000, ms(1_000)), 7);
        assert_eq!(tasks(1_000_000, ms(5_000)), MOST_TASKS);
        assert_eq!((tasks(3, ms(600_000)), tasks(0, ms(1)), tasks(10, ms(0))), (3, 1, 1));
    }

    #[test]
    fn a_path_that_slurm_would_read_otherwise_is_not_plain() {
        assert!(is_plain(Path::new("/home/a/sweep-1")));
        for odd in ["/a b", "/a%j", "/a\nb", "/a'b", "/$HOME", "a"] {
            assert!(!is_plain(Path::new(odd)), "{odd}");
        }
    }

    #[test]
    fn the_scripts_run_a_shard_and_merge() {
        let (program, folder, logs) = (Path::new("/bin/reprieve"), Path::new("/d"), Path::new("/d/slurm"));
        let job = Job { program, folder, logs, tasks: 12, throttle: Some(4) };
        let array = job.array();
        assert!(array.contains("#SBATCH --array=1-12%4\n") && array.contains("#SBATCH --requeue\n"));
        assert!(array.ends_with("exec /bin/reprieve sweep run /d --shard \"$SLURM_ARRAY_TASK_ID/12\"\n"));
        assert!(job.merge().ends_with("exec /bin/reprieve sweep merge /d\n"));
    }
}
