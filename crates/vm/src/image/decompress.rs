//! Compressed kernels and modules: gzip, xz (with the x86 filter), zstd, and lz4 in the kernel's own framing.
//!
//! Output is bounded, whatever the input says. Magic bytes tell the format, as in the kernel's `lib/decompress.c`.
//! Anything after the compressed data is ignored: the kernel's build appends the unpacked size.

use std::io::Read;
use std::path::Path;

use super::{ImageError, Result};

/// Largest unpacked file: a distribution's vmlinux has 50 to 100 MB.
pub(crate) const UNPACKED_BYTES_MAX: usize = 1 << 30;

/// Largest window that the kernel's build compresses with (`zstd --ultra -22`), bytes.
const ZSTD_WINDOW_BYTES_MAX: u64 = 128 << 20;

/// Most bytes that one block of lz4's legacy frame unpacks to.
const LZ4_BLOCK_BYTES_MAX: usize = 8 << 20;

const LZ4_LEGACY_MAGIC: [u8; 4] = [0x02, 0x21, 0x4c, 0x18];

/// Unpacks `data`, or returns `None` if its magic bytes are of no known compression. `path` is for errors.
pub(crate) fn decompress(path: &Path, data: &[u8]) -> Result<Option<Vec<u8>>> {
    let bad = |format, problem: String| ImageError::Decompress { path: path.to_owned(), format, problem };
    let unpacked = match data {
        [0x1f, 0x8b, ..] => read_bounded(flate2::read::GzDecoder::new(data)).map_err(|e| bad("gzip", e)),
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => {
            read_bounded(lzma_rust2::XzReader::new(data, false)).map_err(|e| bad("xz", e))
        }
        [0x28, 0xb5, 0x2f, 0xfd, ..] => zstd(data).map_err(|e| bad("zstd", e)),
        [a, b, c, d, rest @ ..] if [*a, *b, *c, *d] == LZ4_LEGACY_MAGIC => {
            lz4_legacy(rest).map_err(|e| bad("lz4", e))
        }
        _ => return Ok(None),
    };
    unpacked.map(Some)
}

fn read_bounded(reader: impl Read) -> Result<Vec<u8>, String> {
    let mut unpacked = Vec::new();
    reader
        .take(UNPACKED_BYTES_MAX as u64 + 1)
        .read_to_end(&mut unpacked)
        .map_err(|error| error.to_string())?;
    bounded(unpacked)
}

fn bounded(unpacked: Vec<u8>) -> Result<Vec<u8>, String> {
    if unpacked.len() > UNPACKED_BYTES_MAX {
        return Err(format!("unpacks to more than {UNPACKED_BYTES_MAX} bytes"));
    }
    Ok(unpacked)
}

fn zstd(data: &[u8]) -> Result<Vec<u8>, String> {
    ruzstd::decoding::StreamingDecoder::new_with_max_window_size(data, ZSTD_WINDOW_BYTES_MAX)
        .map_err(|error| error.to_string())
        .and_then(read_bounded)
}

/// Unpacks blocks, each of which follows its compressed length (u32, little endian). The appended size looks like a
/// length, so a length that exceeds the rest of the data is no error: it ends the blocks.
fn lz4_legacy(mut data: &[u8]) -> Result<Vec<u8>, String> {
    let mut unpacked = Vec::new();
    let mut block = vec![0; LZ4_BLOCK_BYTES_MAX];
    while let Some((length, rest)) = data.split_first_chunk::<4>() {
        let length = u32::from_le_bytes(*length) as usize;
        if length == 0 || length > rest.len() {
            break;
        }
        let written = lz4_flex::block::decompress_into(&rest[..length], &mut block)
            .map_err(|error| error.to_string())?;
        unpacked.extend_from_slice(&block[..written]);
        unpacked = bounded(unpacked)?;
        data = &rest[length..];
    }
    if unpacked.is_empty() { Err("no data".to_owned()) } else { Ok(unpacked) }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn unpack(data: &[u8]) -> Result<Option<Vec<u8>>> {
        decompress(Path::new("test"), data)
    }

    #[test]
    fn gzip_with_an_appended_size() {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(b"kernel").unwrap();
        let mut data = encoder.finish().unwrap();
        data.extend_from_slice(&6u32.to_le_bytes());
        assert_eq!(unpack(&data).unwrap().unwrap(), b"kernel");
    }

    #[test]
    fn lz4_legacy_blocks_with_an_appended_size() {
        // A block of literals only: token 0x60 (six of them), then the bytes.
        let mut data = LZ4_LEGACY_MAGIC.to_vec();
        for _ in 0..2 {
            data.extend_from_slice(&7u32.to_le_bytes());
            data.extend_from_slice(b"\x60kernel");
        }
        data.extend_from_slice(&12u32.to_le_bytes());
        assert_eq!(unpack(&data).unwrap().unwrap(), b"kernelkernel");
    }

    #[test]
    fn xz_with_the_x86_filter() {
        // printf 'kernel kernel kernel \350\1\2\3\0' | xz --x86 --lzma2 --check=crc32
        let data = [
            0xfd, 0x37, 0x7a, 0x58, 0x5a, 0x00, 0x00, 0x01, 0x69, 0x22, 0xde, 0x36, 0x02, 0x01, 0x04, 0x00,
            0x21, 0x01, 0x16, 0x00, 0x0d, 0x86, 0x35, 0x1f, 0xe0, 0x00, 0x19, 0x00, 0x12, 0x5d, 0x00, 0x35,
            0x99, 0x4a, 0xab, 0xa2, 0xe2, 0xaf, 0x22, 0x58, 0xd5, 0xfa, 0x15, 0xb3, 0x29, 0x04, 0x79, 0xe0,
            0x00, 0x00, 0x00, 0x00, 0xf1, 0x79, 0x98, 0x8f, 0x00, 0x01, 0x2a, 0x1a, 0x79, 0x80, 0x8f, 0xb2,
            0x90, 0x42, 0x99, 0x0d, 0x01, 0x00, 0x00, 0x00, 0x00, 0x01, 0x59, 0x5a,
        ];
        assert_eq!(unpack(&data).unwrap().unwrap(), b"kernel kernel kernel \xe8\x01\x02\x03\x00");
    }

    #[test]
    fn zstd_with_an_appended_size() {
        let mut data =
            ruzstd::encoding::compress_to_vec(&b"kernel"[..], ruzstd::encoding::CompressionLevel::Fastest);
        data.extend_from_slice(&6u32.to_le_bytes());
        assert_eq!(unpack(&data).unwrap().unwrap(), b"kernel");
    }

    #[test]
    fn truncation_never_panics() {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(&[7; 4096]).unwrap();
        let data = encoder.finish().unwrap();
        for length in 0..data.len() {
            assert!(!matches!(unpack(&data[..length]), Ok(Some(_))));
        }
        for magic in
            [[0xfd, b'7', b'z', b'X', b'Z', 0], [0x28, 0xb5, 0x2f, 0xfd, 0, 0], [2, 0x21, 0x4c, 0x18, 0, 0]]
        {
            assert!(unpack(&magic).is_err());
        }
        assert!(unpack(b"\x7fELF").unwrap().is_none());
    }
}
