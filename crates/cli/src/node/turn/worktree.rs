//! The worktree of a command: the root of the repository that it is about. Turns of one user take turns by it.

use std::path::{Path, PathBuf};

/// The nearest directory with a repository, at or above the first of these places that has one. A worktree of git has a
/// file `.git`, and its main one a directory.
pub fn worktree_of<'p>(places: impl Iterator<Item = &'p Path>) -> Option<PathBuf> {
    root_above(places, |dir| dir.join(".git").symlink_metadata().is_ok())
}

fn root_above<'p>(
    places: impl Iterator<Item = &'p Path>,
    is_root: impl Fn(&Path) -> bool,
) -> Option<PathBuf> {
    let mut roots = places.filter_map(|place| place.ancestors().find(|dir| is_root(dir)));
    roots.next().map(Path::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_place_inside_a_repository_says_which_it_is() {
        let roots = ["/home/ann/film", "/home/ann/film/sub/module", "/home/ann/b"];
        let root = |places: &[&str]| {
            let places = places.iter().map(Path::new);
            root_above(places, |dir| roots.iter().any(|root| Path::new(root) == dir))
        };
        let cases: [(&[&str], Option<&str>); 7] = [
            (&["/home/ann/film/src"], Some("/home/ann/film")),
            (&["/home/ann/film"], Some("/home/ann/film")),
            (&["/home/ann/film/sub/module/src/a.c"], Some("/home/ann/film/sub/module")),
            // A dependency is compiled in a directory outside, for an output inside.
            (&["/home/ann/b/target/debug/deps", "/home/ann/.cargo/registry/src/x"], Some("/home/ann/b")),
            (&["/tmp/out", "/home/ann/film/src"], Some("/home/ann/film")),
            (&["/home/ann/filming", "/tmp"], None),
            (&[], None),
        ];
        for (places, expected) in cases {
            assert_eq!(root(places), expected.map(PathBuf::from), "{places:?}");
        }
    }

    #[test]
    fn a_file_and_a_directory_make_a_repository() {
        let dir = tempfile::tempdir().unwrap();
        let (main, tree) = (dir.path().join("main"), dir.path().join("tree"));
        for path in [main.join(".git"), tree.join("src")] {
            std::fs::create_dir_all(path).unwrap();
        }
        std::fs::write(tree.join(".git"), "gitdir: ../main/.git/worktrees/tree\n").unwrap();
        let of = |path: &Path| worktree_of(std::iter::once(path));
        assert_eq!(of(&main.join("not/there")), Some(main));
        assert_eq!(of(&tree.join("src")), Some(tree));
    }
}
