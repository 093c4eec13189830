use super::*;
use crate::bits::bits;

fn shape(cpus: usize, leaf: usize, fanout: usize) -> (usize, usize, usize) {
    let tree = Tree::new(cpus, leaf, fanout);
    (tree.nodes.len(), tree.leaves().len(), tree.cpus_per_leaf)
}

#[test]
fn shapes_are_those_of_the_kernel() {
    assert_eq!(shape(1, 16, 64), (1, 1, 1));
    assert_eq!(shape(16, 16, 64), (1, 1, 16));
    // Spread evenly: 9 and 8.
    assert_eq!(shape(17, 16, 64), (3, 2, 9));
    assert_eq!(shape(1024, 16, 64), (65, 64, 16));
    assert_eq!(shape(1025, 16, 64), (1 + 2 + 65, 65, 16));
    assert_eq!(shape(9, 2, 2), (1 + 2 + 3 + 5, 5, 2));
}

#[test]
fn every_cpu_has_a_bit_of_its_own_in_a_leaf() {
    for cpus in 1..200 {
        let tree = Tree::new(cpus, 3, 4);
        let mut seen = Vec::new();
        for leaf in tree.leaves() {
            let node = &tree.nodes[leaf];
            assert!(node.all != 0);
            seen.extend(bits(node.all).map(|bit| node.first_cpu + bit as usize));
        }
        assert_eq!(seen, (0..cpus).collect::<Vec<_>>());
        assert!((0..cpus).all(|cpu| {
            let node = &tree.nodes[tree.leaf_of(cpu) as usize];
            node.first_cpu + tree.bit_of(cpu).trailing_zeros() as usize == cpu
        }));
    }
}

#[test]
fn the_root_empties_with_the_last_cpu_in_any_order() {
    for cpus in [1, 5, 16, 17, 64] {
        for stride in [1, 3, 7] {
            let mut tree = Tree::new(cpus, 4, 2);
            for kind in [Kind::Normal, Kind::Expedited] {
                tree.set(kind);
                let order: Vec<_> = (0..cpus).map(|i| i * stride % cpus).collect();
                for (i, &cpu) in order.iter().enumerate() {
                    let is_again = order[..i].contains(&cpu);
                    let distinct = order[..=i].iter().collect::<std::collections::BTreeSet<_>>().len();
                    let emptied = tree.clear(kind, tree.leaf_of(cpu), tree.bit_of(cpu));
                    assert_eq!(emptied, distinct == cpus && !is_again);
                    assert_eq!(tree.is_clear(kind), distinct == cpus);
                }
            }
        }
    }
}

#[test]
fn the_two_kinds_do_not_touch_each_other() {
    let mut tree = Tree::new(2, 2, 2);
    tree.set(Kind::Normal);
    tree.set(Kind::Expedited);
    assert!(tree.clear(Kind::Normal, 0, 3));
    assert!(!tree.is_clear(Kind::Expedited));
    assert!(!tree.clear(Kind::Normal, 0, 1), "clear already");
}
