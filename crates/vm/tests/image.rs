//! Prepares a real guest image and looks into it. Downloads about 45 MB the first time; the cache is the
//! user's, or what REPRIEVE_TEST_CACHE names.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;

use reprieve_vm::image::{Cache, GuestImage, ImageError, ImageOptions, KernelChoice, prepare, vmlinux};

fn cache() -> Cache {
    let named = std::env::var_os("REPRIEVE_TEST_CACHE").map(PathBuf::from);
    Cache::new(named.unwrap_or_else(|| Cache::default_dir(|name| std::env::var_os(name)).unwrap())).unwrap()
}

/// The image, or `None` with a message where the machine lacks what it takes: that is not what is tested.
fn image() -> Option<GuestImage> {
    let mut progress = |step: &str| eprintln!("{step}");
    match prepare(&cache(), &ImageOptions::default(), &mut progress) {
        Ok(image) => Some(image),
        Err(error) if error.is_missing() && std::env::var_os("REPRIEVE_TEST_REQUIRE_IMAGE").is_none() => {
            eprintln!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Names in the archive, with what they hold.
fn listing(image: &GuestImage) -> BTreeMap<String, Vec<u8>> {
    let archive = std::fs::read(&image.initramfs).unwrap();
    let mut rest = archive.as_slice();
    let mut entries = BTreeMap::new();
    loop {
        let mut reader = cpio::newc::Reader::new(rest).unwrap();
        let name = reader.entry().name().to_owned();
        if reader.entry().is_trailer() {
            return entries;
        }
        let mut content = Vec::new();
        std::io::copy(&mut reader, &mut content).unwrap();
        assert!(entries.insert(name, content).is_none(), "an entry is there twice");
        rest = reader.finish().unwrap();
    }
}

#[test]
fn image_is_complete() {
    let Some(image) = image() else { return };
    let entries = listing(&image);
    for name in
        ["init", "bin/sh", "bin/lab", "bin/clone", "usr/bin/postmark", "lib/reprieve_lab.ko", "dev", "proc"]
    {
        assert!(entries.contains_key(name), "{name} is missing");
    }
    assert_eq!(entries["bin/sh"], b"busybox");
    let order = String::from_utf8(entries["lib/order"].clone()).unwrap();
    let drivers: Vec<&str> = order.lines().collect();
    for driver in &drivers {
        assert!(entries[&format!("lib/modules/{driver}")].starts_with(b"\x7fELF"), "{driver}");
    }
    let place = |name: &str| drivers.iter().position(|driver| *driver == name);
    if let (Some(ring), Some(console)) = (place("virtio_ring.ko"), place("virtio_console.ko")) {
        assert!(ring < console, "{order}");
    }
    assert!(image.has_module && image.kernel.vmlinuz.is_file());
}

#[test]
fn second_preparation_makes_nothing_and_is_the_same() {
    let Some(first) = image() else { return };
    let mut steps = Vec::new();
    let since = Instant::now();
    let second =
        prepare(&cache(), &ImageOptions::default(), &mut |step| steps.push(step.to_owned())).unwrap();
    eprintln!("second preparation: {:?}", since.elapsed());
    assert!(steps.is_empty(), "{steps:?}");
    assert_eq!((first.initramfs, first.kernel), (second.initramfs, second.kernel));
}

#[test]
fn a_kernel_of_the_users_own() {
    let Some(GuestImage { kernel, .. }) = image() else { return };
    let options = ImageOptions {
        kernel: KernelChoice::File(kernel.vmlinuz.clone()),
        modules_dir: kernel.modules_dir.clone(),
        headers_dir: kernel.headers_dir.clone(),
        ..ImageOptions::default()
    };
    let own = prepare(&cache(), &options, &mut |_| ()).unwrap();
    assert_eq!((&own.kernel.release, own.has_module), (&kernel.release, true));
    assert!(listing(&own).contains_key("lib/modules/virtio_console.ko"));

    let dir = tempfile::tempdir().unwrap();
    let broken = dir.path().join("vmlinuz");
    let data = std::fs::read(&kernel.vmlinuz).unwrap();
    std::fs::write(&broken, &data[..data.len() / 2]).unwrap();
    let options = ImageOptions { kernel: KernelChoice::File(broken), ..ImageOptions::default() };
    let error = prepare(&cache(), &options, &mut |_| ()).unwrap_err();
    assert!(matches!(error, ImageError::NotAKernel { .. }), "{error}");
}

#[test]
fn layouts_of_the_real_kernel() {
    let Some(GuestImage { btf, kernel, .. }) = image() else { return };
    let gp_seq = btf.offset("rcu_state", "gp_seq").unwrap();
    assert_eq!(gp_seq.size_bytes, 8);
    let node = btf.offset("rcu_state", "node").unwrap();
    assert_eq!(node.element_bytes, btf.size_of("rcu_node").unwrap());
    let qsmask = btf.offset("rcu_node", "qsmask").unwrap();
    assert_eq!(
        btf.offset("rcu_state", "node[0].qsmask").unwrap().offset_bytes,
        node.offset_bytes + qsmask.offset_bytes
    );
    assert_eq!(btf.offset("rcu_data", "cblist.len").unwrap().size_bytes, 8);
    assert_eq!(btf.enum_value("cpu_usage_stat", "CPUTIME_SYSTEM").unwrap(), 2);
    assert!(btf.size_of("task_struct").is_ok() && btf.size_of("no_such_struct").is_err());
    eprintln!("{}: rcu_state.gp_seq at {}", kernel.release, gp_seq.offset_bytes);
    assert!(vmlinux(&kernel.vmlinuz).unwrap().starts_with(b"\x7fELF"));
}
