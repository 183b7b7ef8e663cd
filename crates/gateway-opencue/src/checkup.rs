//! Checks of an OpenCue database for a scheduler: schema, triggers, units, and other schedulers.

use crate::finding::{Finding, note, ok, wrong};
use crate::scheduler::INSTANCE_LOCKS;
use crate::scheduler::snapshot::Scope;
use tokio_postgres::{Client, Error};

/// The columns that are needed, each with the migration that adds it.
const COLUMNS: &str = "SELECT w.t || '.' || w.c, w.v FROM (VALUES ('layer', 'ts_start_after', 'V47'),
        ('show', 'b_scheduler_managed', 'V45'), ('job', 'str_loki_url', 'V29'), ('proc', 'int_gpus_reserved', 'V4'))
        AS w(t, c, v)
    WHERE NOT EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = to_regclass(w.t) AND a.attname = w.c)
        AND NOT (w.c = 'b_scheduler_managed' AND $1) LIMIT 1";
/// Tables whose counters need the schema's triggers, and that have no trigger.
const UNCOUNTED: &str =
    "SELECT string_agg(t, ', ') FROM unnest(ARRAY['frame', 'job', 'layer', 'folder', 'proc', 'host'])
    AS t WHERE NOT EXISTS (SELECT FROM pg_trigger g WHERE g.tgrelid = to_regclass(t) AND NOT g.tgisinternal
        AND g.tgenabled IN ('O', 'A') AND g.tgname NOT LIKE 'windlass%')";
const WAKES: &str = "SELECT count(*) FROM pg_trigger WHERE tgname LIKE 'windlass_wake_%'";
const SHOWS: &str = "SELECT coalesce(string_agg(w.str_name, ', ' ORDER BY w.str_name), ''),
        coalesce(string_agg(w.str_name, ', ' ORDER BY w.str_name) FILTER (WHERE NOT EXISTS (
            SELECT FROM subscription s WHERE s.pk_show = w.pk_show AND s.int_burst > 0)), '')
    FROM show w WHERE w.b_active AND ";
const HOSTS: &str = "SELECT count(*), count(*) FILTER (WHERE s.str_state = 'UP' AND h.str_lock_state = 'OPEN'
            AND s.ts_ping > now() - make_interval(secs => $1)),
        count(*) FILTER (WHERE h.int_cores > 0 AND (h.int_cores < 100 OR h.int_cores > 200000)),
        count(*) FILTER (WHERE h.int_mem > 68719476736 OR (h.int_mem > 0 AND h.int_mem < 65536))
    FROM host h LEFT JOIN host_stat s USING (pk_host)";
/// Young procs of managed shows whose key does not begin with the number of a running instance.
const FOREIGN: &str = "SELECT count(*) FROM proc p JOIN show w USING (pk_show)
    WHERE p.ts_booked > now() - interval '10 minutes' AND NOT EXISTS (SELECT FROM pg_locks
        WHERE locktype = 'advisory' AND classid = $2::int::oid AND objsubid = 2 AND granted
            AND lpad(to_hex(objid::bigint), 8, '0') = left(p.pk_proc, 8)) AND ";
/// What the settings name and the database does not have.
const UNKNOWN: &str = "SELECT 'the show ' || w.n FROM unnest($1::text[]) AS w(n)
        WHERE NOT EXISTS (SELECT FROM show s WHERE s.str_name = w.n)
    UNION SELECT 'the facility ' || w.n FROM unnest($2::text[]) AS w(n)
        WHERE NOT EXISTS (SELECT FROM facility y WHERE y.str_name = w.n)
    UNION SELECT 'an allocation with the tag ' || w.n FROM unnest($3::text[]) AS w(n)
        WHERE NOT EXISTS (SELECT FROM alloc a WHERE a.str_tag = w.n)
    UNION SELECT 'a subscription of the show ' || w.n || ' to an allocation with the tag ' || w.t
        FROM unnest($4::text[], $3::text[]) AS w(n, t)
        WHERE EXISTS (SELECT FROM show s WHERE s.str_name = w.n)
            AND EXISTS (SELECT FROM alloc a WHERE a.str_tag = w.t)
            AND NOT EXISTS (SELECT FROM subscription b JOIN show s USING (pk_show) JOIN alloc a USING (pk_alloc)
                WHERE s.str_name = w.n AND a.str_tag = w.t)
    UNION SELECT 'a host with the tag ' || w.n FROM unnest($5::text[]) AS w(n)
        WHERE NOT EXISTS (SELECT FROM host_tag t WHERE t.str_tag = w.n)
    ORDER BY 1";
const CLIENTS: &str =
    "SELECT coalesce(string_agg(DISTINCT coalesce(nullif(application_name, ''), usename), ', '), '')
    FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
        AND backend_type = 'client backend'";

/// The first column that the schema lacks, and the migration that adds it. With `names_shows` the shows are in the
/// config file, and need no mark.
pub async fn missing_column(client: &Client, names_shows: bool) -> Result<Option<(String, String)>, Error> {
    let row = client.query_opt(COLUMNS, &[&names_shows]).await?;
    Ok(row.map(|row| (row.get(0), row.get(1))))
}

/// What the settings name and the database does not have, such as `the show film`.
pub async fn unknown_names(client: &Client, scope: &Scope) -> Result<Vec<String>, Error> {
    let of_pairs: Vec<&String> = scope.alloc_tags.iter().map(|(show, _)| show).collect();
    let alloc_tags: Vec<&String> = scope.alloc_tags.iter().map(|(_, tag)| tag).collect();
    let shows: Vec<&String> = scope.shows.iter().flatten().chain(of_pairs.iter().copied()).collect();
    let facilities: Vec<&String> = scope.facility.iter().collect();
    let tags: Vec<&String> = scope.manual_tags.iter().chain(&scope.ignore_tags).collect();
    let rows = client.query(UNKNOWN, &[&shows, &facilities, &alloc_tags, &of_pairs, &tags]).await?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

/// Checks the database. Nothing is changed.
pub async fn checkup(client: &Client, scope: &Scope) -> Result<Vec<Finding>, Error> {
    if let Some((column, migration)) = missing_column(client, scope.shows.is_some()).await? {
        let detail = format!("there is no column {column}, which migration {migration} brings");
        return Ok(vec![wrong("schema", detail, "run OpenCue's migrations up to V47 on this database")]);
    }
    let mut found = vec![ok("schema", "the columns up to migration V47 are there".to_owned())];
    found.extend(triggers(client).await?);
    found.push(shows(client, scope).await?);
    let unknown = unknown_names(client, scope).await?;
    if !unknown.is_empty() {
        let detail = format!("the settings name {}, which the database does not have", unknown.join(", "));
        let advice = "correct 'alloc_tags', 'manual_tags', 'ignore_tags', 'facility' and 'windlass.shows', or their \
                      flags, or make what they name";
        found.push(note("names", detail, advice));
    }
    found.extend(hosts(client, scope).await?);
    found.push(others(client, scope).await?);
    Ok(found)
}

async fn triggers(client: &Client) -> Result<Vec<Finding>, Error> {
    let without: Option<String> = client.query_one(UNCOUNTED, &[]).await?.get(0);
    let counting = match without {
        None => ok("triggers", "OpenCue's own count what is booked".to_owned()),
        Some(tables) => wrong(
            "triggers",
            format!("these tables have no active trigger: {tables}"),
            "restore the schema from OpenCue's migrations: without its triggers all counts are wrong",
        ),
    };
    let wakes: i64 = client.query_one(WAKES, &[]).await?.get(0);
    let waking = if wakes >= 3 {
        ok("wake-up", "triggers tell of work as it comes".to_owned())
    } else {
        let detail = "no triggers tell of work; it is looked for each second".to_owned();
        note("wake-up", detail, "'windlass gateway opencue --install-wake' installs them")
    };
    Ok(vec![counting, waking])
}

async fn shows(client: &Client, scope: &Scope) -> Result<Finding, Error> {
    let row = client.query_one(&format!("{SHOWS}{}", scope.owned()), &[&scope.shows]).await?;
    let (all, without): (String, String) = (row.get(0), row.get(1));
    if all.is_empty() {
        let advice = "'cueadmin -scheduler-managed SHOW on', or name shows in windlass.shows";
        return Ok(wrong("shows", "no active show is scheduled here".to_owned(), advice));
    }
    if without.is_empty() {
        return Ok(ok("shows", all));
    }
    let detail = format!("these shows have no subscription with a burst, and get nothing: {without}");
    Ok(wrong("shows", detail, "'cueadmin -create-sub' gives a show a part of an allocation"))
}

async fn hosts(client: &Client, scope: &Scope) -> Result<Vec<Finding>, Error> {
    let row = client.query_one(HOSTS, &[&scope.host_stale_s]).await?;
    let (all, open, odd_cores, odd_memory): (i64, i64, i64, i64) =
        (row.get(0), row.get(1), row.get(2), row.get(3));
    let detail =
        format!("{open} of {all} hosts are up, open, and have reported within {} s", scope.host_stale_s);
    let present = if open > 0 {
        ok("hosts", detail)
    } else {
        let advice =
            "start RQD on the hosts; it reports to Cuebot, or to the gateway where that stands in for it";
        wrong("hosts", detail, advice)
    };
    let units = if odd_cores + odd_memory == 0 {
        ok("units", "cores are hundredths, and memory is in KiB".to_owned())
    } else {
        let detail = format!(
            "{odd_cores} hosts have less than one core or more than 2,000, and {odd_memory} less than 64 MiB or more \
             than 64 TiB"
        );
        let advice = "cores must be hundredths of a core, and memory KiB: something else writes other units";
        wrong("units", detail, advice)
    };
    Ok(vec![present, units])
}

async fn others(client: &Client, scope: &Scope) -> Result<Finding, Error> {
    let sql = format!("{FOREIGN}{}", scope.owned());
    let foreign: i64 = client.query_one(&sql, &[&scope.shows, &INSTANCE_LOCKS]).await?.get(0);
    let clients: String = client.query_one(CLIENTS, &[]).await?.get(0);
    let connected = if clients.is_empty() {
        "no other client is connected".to_owned()
    } else {
        format!("connected: {clients}")
    };
    if foreign == 0 {
        let detail = format!("none has booked these shows in ten minutes; {connected}");
        return Ok(ok("other schedulers", detail));
    }
    let detail =
        format!("{foreign} bookings of the last ten minutes are of no gateway that runs now; {connected}");
    let advice = "mark the shows as managed so that Cuebot leaves them, and stop OpenCue's own scheduler; gateways that \
                  were stopped leave such bookings too";
    Ok(note("other schedulers", detail, advice))
}
