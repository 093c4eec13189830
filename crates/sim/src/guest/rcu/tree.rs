//! The combining tree: leaves know CPUs, inner nodes know children, each by a bit (`rcu_node`, `rcu_init_one`).
//!
//! Nodes are in breadth-first order: the root is node 0 and the leaves come last. Invariant: a node's bit is set in its
//! parent's mask exactly while its own mask is not empty.

/// A node. Masks of a leaf have a bit per CPU, others a bit per child.
#[derive(Clone, Debug, Default)]
pub(super) struct Node {
    pub parent: Option<u32>,
    /// Its bit in the parent's masks.
    bit: u64,
    /// Its first CPU.
    pub first_cpu: usize,
    /// All CPUs or children.
    all: u64,
    /// Those for which the grace period waits (`qsmask`).
    pub waiting: u64,
    /// Those for which the expedited grace period waits (`expmask`).
    pub expedited: u64,
    /// CPUs with too many callbacks (`cbovldmask`).
    pub overloaded: u64,
    /// Descheduled CPUs, if they count as quiescent.
    pub descheduled: u64,
    /// The grace period that it knows of.
    pub gp_seq: u64,
    /// The furthest one that was asked for (`gp_seq_needed`).
    pub gp_seq_needed: u64,
}

/// Which of the two kinds of grace period a mask belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Normal,
    Expedited,
}

impl Node {
    #[inline]
    fn mask(&mut self, kind: Kind) -> &mut u64 {
        match kind {
            Kind::Normal => &mut self.waiting,
            Kind::Expedited => &mut self.expedited,
        }
    }
}

/// The tree.
#[derive(Debug)]
pub(super) struct Tree {
    pub nodes: Vec<Node>,
    first_leaf: usize,
    cpus_per_leaf: usize,
}

impl Tree {
    /// As many levels as needed; CPUs and children are spread evenly over a level's nodes (`rcu_init_levelspread`).
    pub fn new(cpus: usize, leaf: usize, fanout: usize) -> Tree {
        let mut capacity = leaf;
        let mut levels = vec![cpus.div_ceil(capacity)];
        while levels[0] > 1 {
            capacity *= fanout;
            levels.insert(0, cpus.div_ceil(capacity));
        }
        let cpus_per_leaf = cpus.div_ceil(*levels.last().unwrap_or(&1));
        let first_leaf = levels[..levels.len() - 1].iter().sum();
        let mut tree = Tree { nodes: vec![Node::default()], first_leaf, cpus_per_leaf };
        tree.add_levels(&levels);
        for cpu in 0..cpus {
            let at = tree.leaf_of(cpu) as usize;
            tree.nodes[at].all |= 1 << (cpu % cpus_per_leaf);
            tree.nodes[at].first_cpu = cpu - cpu % cpus_per_leaf;
        }
        tree
    }

    fn add_levels(&mut self, levels: &[usize]) {
        let mut first_parent = 0;
        for pair in levels.windows(2) {
            let spread = pair[1].div_ceil(pair[0]);
            for child in 0..pair[1] {
                let parent = first_parent + child / spread;
                let bit = 1 << (child % spread);
                self.nodes[parent].all |= bit;
                self.nodes.push(Node { parent: Some(parent as u32), bit, ..Node::default() });
            }
            first_parent += pair[0];
        }
    }

    /// The leaf of a CPU.
    pub fn leaf_of(&self, cpu: usize) -> u32 {
        (self.first_leaf + cpu / self.cpus_per_leaf) as u32
    }

    /// A CPU's bit in its leaf.
    pub fn bit_of(&self, cpu: usize) -> u64 {
        1 << (cpu % self.cpus_per_leaf)
    }

    /// The leaves' indices.
    pub fn leaves(&self) -> std::ops::Range<usize> {
        self.first_leaf..self.nodes.len()
    }

    /// Whether a grace period waits for nobody any more.
    #[inline]
    pub fn is_clear(&self, kind: Kind) -> bool {
        match kind {
            Kind::Normal => self.nodes[0].waiting == 0,
            Kind::Expedited => self.nodes[0].expedited == 0,
        }
    }

    /// A grace period waits for everybody.
    pub fn set(&mut self, kind: Kind) {
        for node in &mut self.nodes {
            *node.mask(kind) = node.all;
        }
    }

    /// Clears CPUs of a leaf and, while nodes become empty, goes up. True if that emptied the root.
    pub fn clear(&mut self, kind: Kind, leaf: u32, mut bits: u64) -> bool {
        let mut at = leaf;
        loop {
            let node = &mut self.nodes[at as usize];
            let mask = node.mask(kind);
            if *mask & bits == 0 {
                return false;
            }
            *mask &= !bits;
            if *mask != 0 {
                return false;
            }
            bits = node.bit;
            match node.parent {
                Some(parent) => at = parent,
                None => return true,
            }
        }
    }
}

#[cfg(test)]
#[path = "tests/tree.rs"]
mod tests;
