//! The records of a trace file.
//!
//! A record is a head of 32 bits (event 28, number of further words 3, whether a time stamp follows 1), the time stamp
//! counter (64 bits, low word first) if it has one, and the further words. Records of one pCPU stand together, after a
//! record that names it and the length of what follows; times ascend within a pCPU only.
//!
//! Nothing is trusted: sizes are bounded, and a file that ends within a record is an error.

use std::io::Read;

/// Largest trace, unpacked.
const TRACE_BYTES_MAX: u64 = 256 << 20;
/// More pCPUs than this are a damaged file.
const PCPUS_MAX: u32 = 4096;
/// The record before those of one pCPU: its number, and their length in bytes.
const CPU_CHANGE: u32 = 0x1f003;
/// Records that did not fit into the buffer; their number is the first word.
const LOST: u32 = 0x1f001;

/// One event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// The pCPU's time stamp counter.
    pub tsc: u64,
    /// On which pCPU.
    pub pcpu: u32,
    /// Which event.
    pub event: u32,
    words: [u32; 7],
    count: u8,
}

impl Record {
    /// What it says of the event.
    pub fn words(&self) -> &[u32] {
        &self.words[..self.count.into()]
    }

    /// For tests: a record.
    #[cfg(test)]
    pub fn of(tsc: u64, pcpu: u32, event: u32, said: &[u32]) -> Record {
        let mut words = [0; 7];
        words[..said.len()].copy_from_slice(said);
        Record { tsc, pcpu, event, words, count: said.len() as u8 }
    }
}

/// All of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Records {
    /// In the order of time.
    pub events: Vec<Record>,
    /// Events that did not fit into Xen's buffers.
    pub lost: u64,
}

impl Records {
    /// Reads a file that gzip has packed.
    ///
    /// # Errors
    /// What is wrong with it: truncated, damaged, too large.
    pub fn unpack(packed: &[u8]) -> Result<Records, String> {
        let mut data = Vec::new();
        let unpacker = flate2::read::GzDecoder::new(packed);
        unpacker
            .take(TRACE_BYTES_MAX + 1)
            .read_to_end(&mut data)
            .map_err(|error| format!("the trace is truncated or damaged: {error}"))?;
        if data.len() as u64 > TRACE_BYTES_MAX {
            return Err(format!("the trace has more than {TRACE_BYTES_MAX} bytes"));
        }
        Records::parse(&data)
    }

    /// Reads a file.
    pub fn parse(data: &[u8]) -> Result<Records, String> {
        let mut words = Words { rest: data };
        let (mut records, mut pcpu) = (Records::default(), None);
        while !words.rest.is_empty() {
            let at = data.len() - words.rest.len();
            let (record, has_tsc) = words
                .record()
                .ok_or_else(|| format!("the trace is truncated: it ends in the record at {at}"))?;
            match (record.event, record.words()) {
                (CPU_CHANGE, [next, ..]) if *next < PCPUS_MAX => pcpu = Some(*next),
                (CPU_CHANGE, _) => {
                    return Err(format!("the trace is damaged: no pCPU in the record at {at}"));
                }
                (LOST, [count, ..]) => records.lost = records.lost.saturating_add((*count).into()),
                _ if !has_tsc => {}
                _ => {
                    let pcpu =
                        pcpu.ok_or_else(|| "the trace is damaged: it begins without a pCPU".to_string())?;
                    records.events.push(Record { pcpu, ..record });
                }
            }
        }
        // Stable: what one pCPU did at one time keeps its order.
        records.events.sort_by_key(|record| record.tsc);
        Ok(records)
    }
}

struct Words<'a> {
    rest: &'a [u8],
}

impl Words<'_> {
    fn word(&mut self) -> Option<u32> {
        let (word, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(u32::from_le_bytes(*word))
    }

    /// The next record and whether it has a time; its pCPU is not known here.
    fn record(&mut self) -> Option<(Record, bool)> {
        let head = self.word()?;
        let (event, count, has_tsc) = (head & 0x0fff_ffff, head >> 28 & 7, head >> 31 == 1);
        let tsc = if has_tsc { u64::from(self.word()?) | u64::from(self.word()?) << 32 } else { 0 };
        let mut words = [0; 7];
        for word in &mut words[..count as usize] {
            *word = self.word()?;
        }
        Some((Record { tsc, pcpu: 0, event, words, count: count as u8 }, has_tsc))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    fn push(data: &mut Vec<u8>, event: u32, tsc: Option<u64>, words: &[u32]) {
        let head = event | (words.len() as u32) << 28 | u32::from(tsc.is_some()) << 31;
        data.extend(head.to_le_bytes());
        data.extend(tsc.into_iter().flat_map(u64::to_le_bytes));
        data.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    }

    fn sample() -> Vec<u8> {
        let mut data = Vec::new();
        push(&mut data, CPU_CHANGE, None, &[1, 0]);
        push(&mut data, 0x28004, Some(1 << 33), &[2, 0]);
        push(&mut data, CPU_CHANGE, None, &[0, 0]);
        push(&mut data, LOST, Some(5), &[3, 0, 0, 0]);
        push(&mut data, 0x2800a, Some(7), &[1, 0, 2, 0]);
        data
    }

    #[test]
    fn records_come_in_the_order_of_time_with_their_pcpus() {
        let records = Records::parse(&sample()).unwrap();
        assert_eq!(records.lost, 3);
        assert_eq!(
            records.events,
            [Record::of(7, 0, 0x2800a, &[1, 0, 2, 0]), Record::of(1 << 33, 1, 0x28004, &[2, 0])]
        );
    }

    #[test]
    fn a_truncated_or_damaged_file_is_an_error() {
        let whole = sample();
        // At these lengths a record ends, so nothing tells that more was to come; gzip's own checksum does.
        let ends = [0, 12, 32, 44, 72, whole.len()];
        for length in 0..=whole.len() {
            assert_eq!(Records::parse(&whole[..length]).is_ok(), ends.contains(&length), "{length}");
        }
        assert!(Records::parse(&whole[12..]).unwrap_err().contains("without a pCPU"));
        assert!(Records::unpack(b"no gzip").unwrap_err().contains("truncated or damaged"));
    }

    #[test]
    fn whatever_the_bytes_say_it_ends() {
        let mut state = 1u64;
        let noise: Vec<u8> = (0..10_000)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 56) as u8
            })
            .collect();
        for from in 0..1_000 {
            let _ = Records::parse(&noise[from..]);
        }
    }
}
