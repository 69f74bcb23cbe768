//! Queries of the index.

use std::collections::HashSet;
use std::time::SystemTime;

use quell_core::JobId;
use rusqlite::types::Value;
use rusqlite::{Connection, Params, Row, params_from_iter};

use super::{Broken, Fail, Index};
use crate::view::JobView;
use crate::{Filter, TagFilter};

/// A finished job as `gc` sees it.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    pub id: JobId,
    pub name: Option<String>,
    /// In milliseconds since 1970.
    pub ended: i64,
    pub size: u64,
    /// Whether it has not ended and has no lock any more, so that its processes may be alive.
    pub is_lost: bool,
    pub boot: Option<String>,
    pub broken: bool,
}

/// A condition in SQL, with its values.
pub(super) struct WhereClause {
    pub sql: String,
    pub values: Vec<Value>,
}

impl Filter {
    pub(super) fn condition(&self) -> WhereClause {
        // A job that can't be read is listed only among the warnings.
        let mut sql = String::from("broken IS NULL");
        let mut values: Vec<Value> = Vec::new();
        if !self.states.is_empty() {
            let marks = vec!["?"; self.states.len()].join(", ");
            sql += &format!(" AND state IN ({marks})");
            values.extend(self.states.iter().map(|state| Value::from(state.as_str().to_owned())));
        }
        for tag in &self.tags {
            sql += &format!(" AND id IN (SELECT id FROM tags WHERE {})", label(tag, &mut values));
        }
        if let Some(session) = &self.session {
            sql += " AND session = ?";
            values.push(session.clone().into());
        }
        if let Some(name) = &self.name {
            sql += " AND name = ?";
            values.push(name.clone().into());
        }
        if let Some(since) = self.since {
            sql += " AND ended >= ?";
            values.push(ms_of(since).into());
        }
        if let Some(before) = self.before {
            sql += " AND (ended, id) < (SELECT ended, id FROM jobs WHERE id = ?)";
            values.push(before.to_string().into());
        }
        WhereClause { sql, values }
    }

    /// Whether all jobs are selected.
    fn is_all(&self) -> bool {
        let Self { states, tags, session, name, since, before, .. } = self;
        let is_any = session.is_none() && name.is_none() && since.is_none() && before.is_none();
        is_any && states.is_empty() && tags.is_empty()
    }

    /// Where the ids and ends of these jobs are found, and under which condition: among the labels alone if nothing else is
    /// asked for, where those of one label are in order.
    fn ends(&self) -> (&'static str, WhereClause) {
        let plain =
            self.states.is_empty() && self.session.is_none() && self.name.is_none() && self.before.is_none();
        match self.tags.as_slice() {
            [tag] if plain => {
                let mut values = Vec::new();
                let mut sql = label(tag, &mut values);
                if let Some(since) = self.since {
                    sql += " AND ended >= ?";
                    values.push(ms_of(since).into());
                }
                ("tags", WhereClause { sql, values })
            }
            _ => ("jobs", self.condition()),
        }
    }
}

/// The condition for a row of `tags` with this label.
fn label(tag: &TagFilter, values: &mut Vec<Value>) -> String {
    values.push(tag.key.clone().into());
    match &tag.value {
        Some(value) => {
            values.push(value.clone().into());
            "key = ? AND value = ?".into()
        }
        None => "key = ?".into(),
    }
}

/// A time in milliseconds since 1970.
pub(crate) fn ms_of(time: SystemTime) -> i64 {
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(after) => i64::try_from(after.as_millis()).unwrap_or(i64::MAX),
        Err(before) => i64::try_from(before.duration().as_millis()).map_or(i64::MIN, |ms| -ms),
    }
}

impl Index {
    /// The jobs that ended last, newest first; all of them without a limit.
    pub fn newest(&self, wanted: &Filter, limit: Option<usize>) -> Result<Vec<JobView>, Fail> {
        let WhereClause { sql, values } = match limit {
            None => wanted.condition(),
            // The ids first: views are large, and sorting those of all selected jobs would take most of the time.
            Some(_) => {
                let (table, WhereClause { sql, mut values }) = wanted.ends();
                values.push(limit_value(limit));
                let last = format!("SELECT id FROM {table} WHERE {sql} ORDER BY ended DESC, id DESC LIMIT ?");
                WhereClause { sql: format!("id IN ({last})"), values }
            }
        };
        let mut query = self.db.prepare_cached(&format!(
            "SELECT size, view FROM jobs WHERE {sql} ORDER BY ended DESC, id DESC"
        ))?;
        let mut rows = query.query(params_from_iter(values))?;
        let mut views = Vec::new();
        while let Some(row) = rows.next()? {
            let text: String = row.get(1)?;
            let mut view: JobView =
                serde_json::from_str(&text).map_err(|error| Fail::Damaged(error.to_string()))?;
            view.size_on_disk = Some(row.get::<_, i64>(0)?.cast_unsigned());
            views.push(view);
        }
        Ok(views)
    }

    /// The jobs that ended unproven, in this boot or before.
    pub fn unproven(&self) -> Result<Vec<JobId>, Fail> {
        self.ids("SELECT id FROM jobs WHERE verdict = 'unproven' ORDER BY id", [])
    }

    /// The number of selected jobs.
    pub fn count(&self, wanted: &Filter) -> Result<u64, Fail> {
        let (table, WhereClause { sql, values }) = wanted.ends();
        let mut query = match wanted.is_all() {
            true => self.db.prepare_cached("SELECT jobs FROM total")?,
            false => self.db.prepare_cached(&format!("SELECT count(*) FROM {table} WHERE {sql}"))?,
        };
        let count: i64 = query.query_row(params_from_iter(values), |row| row.get(0))?;
        Ok(count.cast_unsigned())
    }

    /// The jobs whose records can't be read, newest first.
    pub fn broken(&self) -> Result<Vec<Broken>, Fail> {
        let mut query = self
            .db
            .prepare_cached("SELECT id, broken FROM jobs WHERE broken IS NOT NULL ORDER BY id DESC")?;
        let mut rows = query.query([])?;
        let mut broken = Vec::new();
        while let Some(row) = rows.next()? {
            broken.push(Broken { id: id_of(row)?, why: row.get(1)? });
        }
        Ok(broken)
    }

    /// Some of the jobs whose id begins with `prefix`, which has only characters of ids.
    pub fn beginning_with(&self, prefix: &str, limit: usize) -> Result<Vec<JobId>, Fail> {
        // `~` sorts after every character of an id.
        let sql = "SELECT id FROM jobs WHERE id >= ?1 AND id < ?1 || '~' LIMIT ?2";
        self.ids(sql, (prefix, limit_value(Some(limit))))
    }

    /// The last job that was made with this name, if there is one.
    pub fn last_named(&self, name: &str) -> Result<Vec<JobId>, Fail> {
        self.ids("SELECT id FROM jobs WHERE name = ?1 ORDER BY id DESC LIMIT 1", [name])
    }

    /// For each of `ids` the ones before and after it, in the order of ids.
    #[cfg(feature = "binary")]
    pub fn neighbours(&self, ids: &[JobId]) -> Result<Vec<JobId>, Fail> {
        let sql = "SELECT * FROM (SELECT id FROM jobs WHERE id < ?1 ORDER BY id DESC LIMIT 1)
             UNION ALL SELECT * FROM (SELECT id FROM jobs WHERE id > ?1 ORDER BY id LIMIT 1)";
        let mut found = Vec::new();
        for id in ids {
            found.extend(self.ids(sql, [id.to_string()])?);
        }
        Ok(found)
    }

    /// The ids in the first column of a query.
    fn ids(&self, sql: &str, values: impl Params) -> Result<Vec<JobId>, Fail> {
        let mut query = self.db.prepare_cached(sql)?;
        let mut rows = query.query(values)?;
        let mut ids = Vec::new();
        while let Some(row) = rows.next()? {
            ids.push(id_of(row)?);
        }
        Ok(ids)
    }

    /// All ids.
    pub fn all_ids(&self) -> Result<Vec<JobId>, Fail> {
        Ok(known(&self.db)?.0.into_iter().collect())
    }

    /// All jobs as `gc` needs them. Jobs that ended first come first.
    pub fn candidates(&self) -> Result<Vec<Candidate>, Fail> {
        let mut query = self.db.prepare_cached(
            "SELECT id, name, ended, size, state = 'lost' AND (verdict IS NULL OR verdict = 'survivors'), boot,
             broken IS NOT NULL FROM jobs ORDER BY ended, id",
        )?;
        let mut rows = query.query([])?;
        let mut candidates = Vec::new();
        while let Some(row) = rows.next()? {
            candidates.push(Candidate {
                id: id_of(row)?,
                name: row.get(1)?,
                ended: row.get(2)?,
                size: row.get::<_, i64>(3)?.cast_unsigned(),
                is_lost: row.get(4)?,
                boot: row.get(5)?,
                broken: row.get(6)?,
            });
        }
        Ok(candidates)
    }

    /// Reads `columns` of the selected jobs; `rest` ends the query.
    pub(crate) fn sums<T>(
        &self,
        columns: &str,
        wanted: &Filter,
        rest: &str,
        read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, Fail> {
        self.sums_from("jobs", wanted.condition(), columns, rest, read)
    }

    /// The same over jobs and their labels, with this key or with any: a job counts once for each label.
    pub(crate) fn tag_sums<T>(
        &self,
        columns: &str,
        wanted: &Filter,
        key: Option<&str>,
        rest: &str,
        read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, Fail> {
        let mut condition = wanted.condition();
        if let Some(key) = key {
            condition.sql += " AND key = ?";
            condition.values.push(key.to_owned().into());
        }
        // CROSS keeps the order: from the labels to the jobs, each would be searched in the whole table.
        self.sums_from("jobs CROSS JOIN tags USING (id, ended)", condition, columns, rest, read)
    }

    fn sums_from<T>(
        &self,
        from: &str,
        WhereClause { sql, values }: WhereClause,
        columns: &str,
        rest: &str,
        read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, Fail> {
        let mut query =
            self.db.prepare_cached(&format!("SELECT {columns} FROM {from} WHERE {sql} {rest}"))?;
        let rows = query.query_map(params_from_iter(values), read)?;
        Ok(rows.collect::<rusqlite::Result<Vec<T>>>()?)
    }
}

/// All ids in the index, and the broken ones among them.
pub(super) fn known(db: &Connection) -> Result<(HashSet<JobId>, HashSet<JobId>), Fail> {
    let mut query = db.prepare_cached("SELECT id, broken IS NOT NULL FROM jobs")?;
    let mut rows = query.query([])?;
    let (mut known, mut broken) = (HashSet::new(), HashSet::new());
    while let Some(row) = rows.next()? {
        let id = id_of(row)?;
        known.insert(id);
        if row.get(1)? {
            broken.insert(id);
        }
    }
    Ok((known, broken))
}

fn limit_value(limit: Option<usize>) -> Value {
    // SQLite takes a negative limit for none.
    limit.and_then(|limit| i64::try_from(limit).ok()).unwrap_or(-1).into()
}

fn id_of(row: &Row<'_>) -> Result<JobId, Fail> {
    let text: String = row.get(0)?;
    text.parse().map_err(|error: quell_core::InvalidId| Fail::Damaged(error.to_string()))
}
