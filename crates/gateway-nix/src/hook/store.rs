//! The client's own store: the sizes of its paths, from Nix's database, which is opened read only.

use rusqlite::{Connection, OpenFlags};
use std::path::Path;
use std::time::Duration;

/// How long the hook waits while Nix has the database locked.
const LOCKED_MAX: Duration = Duration::from_millis(200);

/// The `count_max` largest of these store paths, with the bytes of their NARs. If the database cannot be read, the
/// first `count_max` without bytes.
pub fn largest(database: &Path, paths: &[String], count_max: usize) -> Vec<(String, Option<u64>)> {
    let mut sized: Vec<(&String, Option<u64>)> = match sizes(database, paths) {
        Ok(sizes) => paths.iter().zip(sizes).collect(),
        Err(_) => paths.iter().map(|path| (path, None)).collect(),
    };
    sized.sort_by_key(|(_, bytes)| std::cmp::Reverse(bytes.unwrap_or(0)));
    sized.truncate(count_max);
    sized.into_iter().map(|(path, bytes)| (path.clone(), bytes)).collect()
}

fn sizes(database: &Path, paths: &[String]) -> rusqlite::Result<Vec<Option<u64>>> {
    // A missing database must not be created.
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let database = Connection::open_with_flags(database, flags)?;
    database.busy_timeout(LOCKED_MAX)?;
    let mut query = database.prepare("select narSize from ValidPaths where path = ?")?;
    let size = |path: &String| match query.query_row([path], |row| row.get::<_, Option<i64>>(0)) {
        Ok(bytes) => Ok(bytes.and_then(|bytes| u64::try_from(bytes).ok()).filter(|bytes| *bytes > 0)),
        Err(rusqlite::Error::QueryReturnedNoRows) => Ok(None),
        Err(e) => Err(e),
    };
    paths.iter().map(size).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_paths_come_first() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("db.sqlite");
        let database = Connection::open(&file).unwrap();
        let tables = "create table ValidPaths (id integer primary key, path text unique, narSize integer);
            insert into ValidPaths (path, narSize) values ('/a', 10), ('/b', 300), ('/c', null);";
        database.execute_batch(tables).unwrap();
        let paths = ["/a", "/b", "/c", "/d"].map(str::to_owned);
        let found = largest(&file, &paths, 3);
        assert_eq!(found[0], ("/b".to_owned(), Some(300)));
        assert_eq!((found[1].clone(), found.len()), (("/a".to_owned(), Some(10)), 3));
        let unknown = largest(&dir.path().join("none"), &paths, 2);
        assert_eq!(unknown, [("/a".to_owned(), None), ("/b".to_owned(), None)]);
        assert!(!dir.path().join("none").exists());
    }
}
