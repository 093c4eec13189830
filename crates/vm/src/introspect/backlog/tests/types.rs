//! Types of a kernel made by hand, as BTF: as Linux 6.1 has them, and as 6.12 has.

use crate::image::btf::Btf;

/// Which kernel's types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Slabs by a flag, blocks of `kfree_rcu` in lists, one piece of memory a module.
    Linux61,
    /// Slabs by a type, blocks in rings, several pieces of memory.
    Linux612,
}

const INT: u32 = 1;
const ARRAY: u32 = 3;
const STRUCT: u32 = 4;
const ENUM: u32 = 6;

#[derive(Default)]
struct Types {
    words: Vec<u32>,
    text: Vec<u8>,
    count: u32,
}

impl Types {
    fn name(&mut self, name: &str) -> u32 {
        let at = self.text.len() as u32;
        self.text.extend_from_slice(name.as_bytes());
        self.text.push(0);
        at
    }

    fn add(&mut self, kind: u32, name: &str, members: u32, size: u32) -> u32 {
        let name = self.name(name);
        self.words.extend([name, kind << 24 | members, size]);
        self.count += 1;
        self.count
    }

    fn int(&mut self, bytes: u32) -> u32 {
        let id = self.add(INT, "int", 0, bytes);
        self.words.push(8 * bytes);
        id
    }

    fn array(&mut self, of: u32, len: u32) -> u32 {
        let id = self.add(ARRAY, "", 0, 0);
        self.words.extend([of, 1, len]);
        id
    }

    /// Members: name, type, offset in bytes.
    fn structure(&mut self, name: &str, bytes: u32, members: &[(&str, u32, u32)]) -> u32 {
        let id = self.add(STRUCT, name, members.len() as u32, bytes);
        for (name, of, offset) in members {
            let name = self.name(name);
            self.words.extend([name, *of, 8 * offset]);
        }
        id
    }

    fn enumeration(&mut self, name: &str, enumerator: &str, value: u32) {
        self.add(ENUM, name, 1, 4);
        let name = self.name(enumerator);
        self.words.extend([name, value]);
    }

    fn finish(self) -> Btf {
        let mut bytes = vec![0x9f, 0xeb, 1, 0];
        let types = 4 * self.words.len() as u32;
        for word in [24, 0, types, types, self.text.len() as u32].iter().chain(&self.words) {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        bytes.extend_from_slice(&self.text);
        Btf::parse(&bytes).unwrap()
    }
}

/// The types of such a kernel. Only what is asked for is there.
pub fn types(form: Form) -> Btf {
    let mut types = Types::default();
    types.name("");
    let (word, half) = (types.int(8), types.int(4));
    let four = types.array(word, 4);
    let list = types.structure("list_head", 16, &[("next", word, 0), ("prev", word, 8)]);
    types.structure("callback_head", 16, &[("next", word, 0), ("func", word, 8)]);
    let segments = [("head", word, 0), ("tails", four, 8), ("len", word, 40)];
    let segments = types.structure("rcu_segcblist", 48, &segments);
    let bypass = types.structure("rcu_cblist", 16, &[("head", word, 0), ("len", word, 8)]);
    let data = [("cblist", segments, 0), ("cpu", half, 48), ("nocb_bypass", bypass, 56)];
    types.structure("rcu_data", 72, &data);
    let node = [("qsmask", word, 0), ("grplo", half, 8), ("gp_tasks", word, 16), ("blkd_tasks", list, 24)];
    let node = types.structure("rcu_node", 64, &node);
    let state = [
        ("gp_seq", word, 0),
        ("gp_start", word, 8),
        ("gp_kthread", word, 16),
        ("level", four, 24),
        ("node", node, 64),
    ];
    types.structure("rcu_state", 128, &state);
    let name = types.array(half, 4);
    let task =
        [("on_cpu", half, 0), ("on_rq", half, 4), ("cpu", half, 8), ("pid", half, 12), ("comm", name, 16)];
    types.structure("task_struct", 64, &[&task[..], &[("rcu_node_entry", list, 32)]].concat());
    types.structure("kmem_cache", 64, &[("size", half, 0), ("name", word, 8), ("list", list, 16)]);
    types.structure("slab", 64, &[("slab_cache", word, 24)]);
    let page = [("flags", word, 0), ("compound_head", word, 8), ("page_type", half, 48)];
    types.structure("page", 64, &page);
    types.structure("clocksource", 16, &[("mult", half, 0), ("shift", half, 4)]);
    types.structure(
        "mod_kallsyms",
        24,
        &[("symtab", word, 0), ("num_symtab", half, 8), ("strtab", word, 16)],
    );
    krc(&mut types, form, word, list);
    let piece = types.structure("module_memory", 16, &[("base", word, 0), ("size", half, 8)]);
    let (pieces, memory) = match form {
        Form::Linux61 => (piece, "core_layout"),
        Form::Linux612 => (types.array(piece, 4), "mem"),
    };
    types.structure(
        "module",
        160,
        &[("list", list, 0), ("name", four, 16), (memory, pieces, 72), ("kallsyms", word, 144)],
    );
    match form {
        Form::Linux61 => types.enumeration("pageflags", "PG_slab", 9),
        Form::Linux612 => types.enumeration("pagetype", "PGTY_slab", 0xf5),
    }
    types.finish()
}

/// The two heads of lists take 16 bytes each in both forms.
fn krc(types: &mut Types, form: Form, word: u32, list: u32) {
    let (fresh, waiting, link, head) = match form {
        Form::Linux61 => ("bkvhead", "bkvhead_free", "next", word),
        Form::Linux612 => ("bulk_head", "bulk_head_free", "list", list),
    };
    let heads = types.array(head, 2);
    let work = types.structure("kfree_rcu_cpu_work", 40, &[("head_free", word, 0), (waiting, heads, 8)]);
    let works = types.array(work, 2);
    types.structure("kfree_rcu_cpu", 120, &[("head", word, 0), (fresh, heads, 8), ("krw_arr", works, 40)]);
    let records = types.array(word, 0);
    let block = match form {
        Form::Linux61 => [(link, word, 8), ("nr_records", word, 0), ("records", records, 16)],
        Form::Linux612 => [(link, list, 8), ("nr_records", word, 24), ("records", records, 32)],
    };
    types.structure("kvfree_rcu_bulk_data", 32, &block);
}
