//! The conversation with the runner inside a lab guest: lines of text over a virtio-serial port.
//!
//! Nothing that comes from a guest is trusted: lines, files and the number of symbols are bounded, numbers
//! are parsed, and every wait has a deadline and ends at once when the user interrupts or QEMU dies.

mod lines;

use std::collections::BTreeMap;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use reprieve_linux::signals::Interrupt;
use reprieve_study::Span;

use crate::Result;
use crate::error::{VmError, plain};
use lines::{FILE_BYTES, Lines};

/// Characters that an error shows of a line that should have been a frame's head.
const HEAD_CHARACTERS: usize = 40;
/// Most latencies that are taken from a guest, and most Postmark processes.
const SYNCS: usize = 1 << 18;
const PROCESSES: usize = 64;
/// Most symbols that a guest may announce.
const SYMBOLS: usize = 256;
/// How long a guest may take for a short answer, even when one of its vCPUs is starved.
pub const ANSWER_LIMIT: Duration = Duration::from_secs(30);
/// And for a file in pieces, all of them together.
const WHOLE_LIMIT: Duration = Duration::from_secs(300);

/// What the guest said about itself when it was ready.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hello {
    /// Release of its kernel.
    pub release: String,
    /// vCPUs that are online.
    pub vcpus: usize,
    /// Addresses of kernel symbols.
    pub symbols: BTreeMap<String, u64>,
}

/// Numbers that came with a line: `mark t_ns=5 ops=7`.
pub type Fields = BTreeMap<String, u64>;

/// What the guest reported at its end.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// The workload's totals.
    pub result: Fields,
    /// Latencies of `synchronize_rcu()`, in ns.
    pub sync_ns: Vec<u64>,
    /// Why there are none, if the guest could not measure them.
    pub sync_note: Option<String>,
    /// For Postmark: seconds and transactions that each process reported.
    pub postmark: Vec<Fields>,
}

/// The host's end of the conversation.
pub struct Link {
    lines: Lines,
}

impl Link {
    /// Talks over `stream`.
    pub fn new(stream: UnixStream, interrupt: Interrupt) -> Result<Link> {
        Ok(Link { lines: Lines::new(stream, interrupt)? })
    }

    /// Whether the last wait ended because its time was up.
    pub fn is_late(&self) -> bool {
        self.lines.deadline_passed
    }

    /// Waits until the guest has booted and told its symbols.
    pub fn wait_ready(&mut self, limit: Duration) -> Result<Hello> {
        let deadline = Instant::now() + limit;
        let mut hello = Hello::default();
        loop {
            let line = self.lines.line("boot", deadline, limit)?;
            let mut words = line.split_ascii_whitespace();
            match words.next() {
                Some("hello") => {
                    for (key, value) in words.filter_map(|word| word.split_once('=')) {
                        match key {
                            "vcpus" => hello.vcpus = value.parse().unwrap_or(0),
                            "release" => hello.release = plain(value).chars().take(128).collect(),
                            _ => {}
                        }
                    }
                }
                Some("sym") if hello.symbols.len() < SYMBOLS => {
                    let (Some(name), Some(address)) = (words.next(), words.next()) else { continue };
                    if let Ok(address) = u64::from_str_radix(address.trim_start_matches("0x"), 16) {
                        hello.symbols.insert(name.to_string(), address);
                    }
                }
                Some("ready") => return Ok(hello),
                Some("error") => return Err(VmError::guest(line)),
                _ => {}
            }
        }
    }

    /// Starts the workload.
    pub fn start(&mut self, command: &str) -> Result<()> {
        self.ask(&format!("start {command}"), "started", "start the workload").map(drop)
    }

    /// Asks for the workload's counters: `t_ns` is the guest's monotonic clock, `ops` its operations so far.
    pub fn mark(&mut self) -> Result<Fields> {
        self.ask("mark", "mark", "answer a mark").map(|line| fields(&line))
    }

    /// Waits for a workload of fixed size to end by itself.
    pub fn wait_finished(&mut self, limit: Duration) -> Result<()> {
        self.expect("finished", "finish its workload", limit).map(drop)
    }

    /// Lets the guest work for a while; returns early only with an error: the user's interrupt, the guest's end,
    /// or one that the guest reports.
    pub fn let_work(&mut self, duration: Duration) -> Result<()> {
        self.lines.deadline_passed = false;
        match self.expect("finished", "work", duration) {
            Ok(_) => Err(VmError::guest("the workload ended by itself")),
            Err(_) if self.lines.deadline_passed => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Starts one of the host's programs beside the workload: its name and its arguments.
    pub fn start_beside(&mut self, words: &str) -> Result<()> {
        self.ask(&format!("beside {words}"), "beside", "start a program beside its workload").map(drop)
    }

    /// Adds a line to a file of the guest.
    pub fn append(&mut self, path: &str, line: &str) -> Result<()> {
        self.ask(&format!("append {path} {line}"), "appended", "write a file").map(drop)
    }

    /// Removes a file of the guest, if it is there.
    pub fn delete(&mut self, path: &str) -> Result<()> {
        self.ask(&format!("delete {path}"), "deleted", "remove a file").map(drop)
    }

    /// Reads a file of the guest of any size up to `most_bytes`, piece by piece.
    pub fn read_whole(&mut self, path: &str, most_bytes: usize) -> Result<Vec<u8>> {
        self.read_whole_within(path, most_bytes, WHOLE_LIMIT)
    }

    fn read_whole_within(&mut self, path: &str, most_bytes: usize, limit: Duration) -> Result<Vec<u8>> {
        let (began, mut whole) = (Instant::now(), Vec::new());
        loop {
            if began.elapsed() > limit {
                return Err(VmError::late("send a file", limit));
            }
            let piece = self.read_file(&format!("{path} {}", whole.len()))?;
            let is_last = piece.len() < FILE_BYTES;
            whole.extend(piece);
            if whole.len() > most_bytes {
                return Err(VmError::guest(format!("{path} has more than {most_bytes} bytes")));
            }
            if is_last {
                return Ok(whole);
            }
        }
    }

    /// Reads a file of the guest, at most 1 MiB; from a place on, if `path` is followed by it.
    pub fn read_file(&mut self, path: &str) -> Result<Vec<u8>> {
        let line = self.ask(&format!("read {path}"), "file", "send a file")?;
        let size: usize =
            line.split_ascii_whitespace().nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
        self.lines.bytes(size, "send a file", Instant::now() + ANSWER_LIMIT, ANSWER_LIMIT)
    }

    /// The next frame, `NAME LENGTH`, a newline and that many bytes; `limit` is how long the guest may be silent.
    pub fn frame(&mut self, what: &str, limit: Duration) -> Result<(String, Vec<u8>)> {
        let deadline = Instant::now() + limit;
        let line = self.lines.line(what, deadline, limit)?;
        let parsed = line.split_once(' ').and_then(|(name, size)| Some((name, size.parse().ok()?)));
        // The whole line would leave no room for what is wrong with it.
        let head = || line.chars().take(HEAD_CHARACTERS).collect::<String>();
        let (name, size) =
            parsed.ok_or_else(|| VmError::guest(format!("{:?} is no frame's head", head())))?;
        Ok((name.to_string(), self.lines.bytes(size, what, deadline, limit)?))
    }

    /// Stops the workload and collects its results.
    pub fn stop(&mut self, limit: Duration) -> Result<Outcome> {
        self.lines.send("stop")?;
        let deadline = Instant::now() + limit;
        let mut outcome = Outcome::default();
        loop {
            let line = self.lines.line("stop its workload", deadline, limit)?;
            let (word, rest) = line.split_once(' ').unwrap_or((&line, ""));
            match word {
                "sync" if rest.starts_with("unsupported") => outcome.sync_note = Some(plain(rest)),
                "sync" => {
                    let room = SYNCS - outcome.sync_ns.len();
                    outcome
                        .sync_ns
                        .extend(rest.split(' ').filter_map(|word| word.parse::<u64>().ok()).take(room));
                }
                "postmark" if outcome.postmark.len() < PROCESSES => outcome.postmark.push(fields(rest)),
                "result" => outcome.result = fields(rest),
                "bye" => return Ok(outcome),
                "error" => return Err(VmError::guest(line)),
                _ => {}
            }
        }
    }

    /// Tells the guest to switch itself off.
    pub fn power_off(&mut self) -> Result<()> {
        self.lines.send("poweroff")
    }

    /// Sends a line, and waits for the one that begins with `word`. An error says `what` the guest did not do.
    fn ask(&mut self, line: &str, word: &str, what: &str) -> Result<String> {
        self.lines.send(line)?;
        self.expect(word, what, ANSWER_LIMIT)
    }

    /// The next line that begins with `word`; an `error` line is an error, others are passed over.
    fn expect(&mut self, word: &str, what: &str, limit: Duration) -> Result<String> {
        let deadline = Instant::now() + limit;
        loop {
            let line = self.lines.line(what, deadline, limit)?;
            match line.split(' ').next() {
                Some(first) if first == word => return Ok(line),
                Some("error") => return Err(VmError::guest(line)),
                _ => {}
            }
        }
    }
}

/// The guest's time between two marks.
///
/// # Errors
/// Marks of which one has no time, or the later one an earlier time: whatever is a rate over it would be nonsense.
pub fn between(first: &Fields, last: &Fields) -> Result<Span> {
    match (first.get("t_ns"), last.get("t_ns")) {
        (Some(first), Some(last)) if first <= last => Ok(Span::new(*first, *last)),
        (Some(first), Some(last)) => {
            Err(VmError::guest(format!("the guest's clock went back, from {first} ns to {last} ns")))
        }
        _ => Err(VmError::guest("the guest answered a mark without its time")),
    }
}

/// The `key=number` words of a line; other words are passed over.
pub(crate) fn fields(line: &str) -> Fields {
    let pairs = line.split_ascii_whitespace().filter_map(|word| word.split_once('='));
    pairs.filter_map(|(key, value)| Some((key.to_string(), value.parse().ok()?))).collect()
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::lines::LINE_BYTES;
    use super::*;

    fn link() -> (UnixStream, Link) {
        let (guest, host) = UnixStream::pair().unwrap();
        (guest, Link::new(host, Interrupt::manual().unwrap()).unwrap())
    }

    #[test]
    fn a_whole_conversation() {
        let (mut guest, mut link) = link();
        guest.write_all(b"hello 1 vcpus=2 release=6.1.0\nsym rcu_state ffffffff82ad4740\nready\n").unwrap();
        let hello = link.wait_ready(ANSWER_LIMIT).unwrap();
        assert_eq!((hello.vcpus, hello.symbols["rcu_state"]), (2, 0xffff_ffff_82ad_4740));
        guest
            .write_all(b"started\nmark t_ns=5 ops=7\nfile 6\na\nb\nc\nsync 10 20\nresult ops=9\nbye\n")
            .unwrap();
        link.start("idle").unwrap();
        assert_eq!(link.mark().unwrap()["ops"], 7);
        assert_eq!(link.read_file("/x").unwrap(), b"a\nb\nc\n");
        let outcome = link.stop(ANSWER_LIMIT).unwrap();
        assert_eq!((outcome.sync_ns, outcome.result["ops"]), (vec![10, 20], 9));
    }

    #[test]
    fn a_large_file_comes_in_pieces_and_has_an_end() {
        let (mut guest, mut link) = self::link();
        let piece = vec![b'x'; FILE_BYTES];
        // It never ends.
        let writer = std::thread::spawn(move || {
            while writeln!(guest, "file {FILE_BYTES}").and_then(|()| guest.write_all(&piece)).is_ok() {}
        });
        assert!(link.read_whole("/x", 2 * FILE_BYTES).unwrap_err().to_string().contains("has more than"));
        // Its time is up also while pieces come.
        let late = link.read_whole_within("/x", usize::MAX, Duration::from_millis(50)).unwrap_err();
        assert!(late.to_string().contains("did not send a file within"), "{late}");
        drop(link);
        writer.join().unwrap();
        let (mut guest, mut link) = self::link();
        guest.write_all(b"deleted\nappended\nbeside t_ns=1\nfile 2\nab").unwrap();
        link.delete("/x").unwrap();
        link.append("/x", "a b").unwrap();
        link.start_beside("name=x").unwrap();
        assert_eq!(link.read_whole("/x", 2).unwrap(), b"ab");
    }

    #[test]
    fn time_that_goes_back_is_an_error() {
        let mark = |line: &str| fields(line);
        assert_eq!(between(&mark("t_ns=5"), &mark("t_ns=9")).unwrap(), Span::new(5, 9));
        let back = between(&mark("t_ns=9"), &mark("t_ns=5")).unwrap_err().to_string();
        assert!(back.contains("went back, from 9 ns to 5 ns"), "{back}");
        assert!(
            between(&mark("ops=1"), &mark("t_ns=5")).unwrap_err().to_string().contains("without its time")
        );
    }

    #[test]
    fn a_hostile_guest_is_refused() {
        let (mut guest, mut link) = self::link();
        guest.write_all(b"hello 1 vcpus=x release=6.1\x1b]0;owned\x07\nready\n").unwrap();
        let hello = link.wait_ready(ANSWER_LIMIT).unwrap();
        assert_eq!((hello.release.as_str(), hello.vcpus), (r"6.1\x1b]0;owned\x07", 0));
        guest.write_all(b"error \x1b]0;owned\x07\n").unwrap();
        assert!(!link.mark().unwrap_err().to_string().contains('\x1b'));
        guest.write_all(&[&[0xff; 1000][..], b"\n"].concat()).unwrap();
        assert!(link.frame("x", ANSWER_LIMIT).unwrap_err().to_string().ends_with("is no frame's head"));
        guest.write_all(b"file 99999999999\n").unwrap();
        assert!(link.read_file("/x").unwrap_err().to_string().contains("announced"));
        guest.write_all(&[b'x'; 3 * LINE_BYTES]).unwrap();
        assert!(link.mark().unwrap_err().to_string().contains("without an end"));
    }

    #[test]
    fn a_guest_that_does_not_read_is_told_from_one_that_is_gone() {
        let (guest, mut link) = self::link();
        let said = std::iter::repeat_with(|| link.power_off()).take(1 << 20).find_map(Result::err).unwrap();
        assert!(said.to_string().contains("does not read"), "{said}");
        drop(guest);
        // A child that another test forks just now holds the guest's end until it has executed its program.
        let deadline = Instant::now() + ANSWER_LIMIT;
        let mut said = || link.power_off().unwrap_err().to_string();
        let last = std::iter::repeat_with(|| (said(), Instant::now()))
            .find(|(said, now)| !said.contains("does not read") || *now > deadline);
        assert_eq!(last.unwrap().0, "the guest is gone");
    }

    #[test]
    fn waits_end_with_the_deadline_the_guest_and_the_user() {
        let (guest, mut link) = self::link();
        let late = link.wait_finished(Duration::from_millis(5)).unwrap_err();
        assert!(late.to_string().contains("did not finish"));
        drop(guest);
        assert!(link.wait_finished(ANSWER_LIMIT).unwrap_err().to_string().contains("ended before"));
        let (mut guest, host) = UnixStream::pair().unwrap();
        let interrupt = Interrupt::manual().unwrap();
        let mut link = Link::new(host, interrupt.clone()).unwrap();
        assert!(link.let_work(Duration::from_millis(5)).is_ok());
        guest.write_all(b"error out of memory\n").unwrap();
        assert!(link.let_work(ANSWER_LIMIT).is_err(), "after a wait that ended in time");
        interrupt.raise();
        assert!(matches!(link.let_work(ANSWER_LIMIT), Err(VmError::Interrupted)));
        assert!(matches!(link.wait_finished(ANSWER_LIMIT), Err(VmError::Interrupted)));
    }
}
