//! The tables of the database.

use std::path::Path;

use rusqlite::{Connection, Statement, params};

const TABLES: &str = include_str!("tables.sql");
const INDEXES: &str = include_str!("indexes.sql");

const NODE: &str = "INSERT INTO tb_nodes VALUES
    (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, '', '{}', 0, ?13, ?14, ?15, ?16, ?17, ?18, ?19)";

const STACK: &str = "INSERT INTO tb_stack VALUES (?1, ?2)";

/// A database that no other process reads yet.
pub(crate) struct Database {
    connection: Connection,
}

/// The rank and side of a graph.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GraphLocation {
    /// `NPU` for the target, `Bench` for the baseline.
    pub(crate) source: &'static str,
    pub(crate) step: u64,
    pub(crate) rank: u64,
}

impl GraphLocation {
    /// The prefix of the identifiers of nodes and stacks.
    pub(crate) fn id(self) -> String {
        format!("{}_{}_{}", self.source, self.step, self.rank)
    }
}

/// A row of `tb_nodes`.
pub(crate) struct NodeRow<'n> {
    pub(crate) order: usize,
    pub(crate) name: &'n str,
    pub(crate) kind: &'static str,
    pub(crate) parent: &'n str,
    pub(crate) children: String,
    pub(crate) precision: Option<f64>,
    pub(crate) overflow: Option<&'static str>,
    pub(crate) micro_step: u32,
    pub(crate) link: String,
    pub(crate) stack: String,
    pub(crate) input: String,
    pub(crate) output: String,
    pub(crate) tensors: Option<&'n str>,
    pub(crate) is_distributed: bool,
}

/// The row of `tb_config`.
pub(crate) struct ConfigRow {
    pub(crate) kind: &'static str,
    pub(crate) task: &'static str,
    pub(crate) tool_tips: Option<String>,
    pub(crate) micro_steps: u32,
    pub(crate) is_overflow_checked: bool,
    pub(crate) colours: String,
    pub(crate) ranks: String,
    pub(crate) steps: String,
}

impl Database {
    /// Creates the tables in a new file.
    pub(crate) fn create(path: &Path) -> rusqlite::Result<Self> {
        let connection = Connection::open(path)?;
        // A failed run drops the whole file, so it needs no journal.
        connection.execute_batch("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;")?;
        connection.execute_batch(TABLES)?;
        Ok(Self { connection })
    }

    /// Writes rows in one transaction.
    pub(crate) fn rows(&mut self, write: impl FnOnce(&mut Rows<'_>) -> rusqlite::Result<()>) -> rusqlite::Result<()> {
        let transaction = self.connection.transaction()?;
        write(&mut Rows { node: transaction.prepare(NODE)?, stack: transaction.prepare(STACK)? })?;
        transaction.commit()
    }

    /// Writes the configuration and the indexes, and closes the file.
    pub(crate) fn finish(self, config: &ConfigRow) -> rusqlite::Result<()> {
        let ConfigRow { kind, task, tool_tips, micro_steps, is_overflow_checked, colours, ranks, steps } = config;
        self.connection.execute(
            "INSERT INTO tb_config VALUES ('1', ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
            params![kind, task, tool_tips, micro_steps, is_overflow_checked, colours, ranks, steps],
        )?;
        self.connection.execute_batch(INDEXES)?;
        self.connection.close().map_err(|(_, error)| error)
    }
}

/// An open transaction.
pub(crate) struct Rows<'t> {
    node: Statement<'t>,
    stack: Statement<'t>,
}

impl Rows<'_> {
    /// Writes a node.
    pub(crate) fn node(&mut self, at: GraphLocation, row: &NodeRow<'_>) -> rusqlite::Result<()> {
        let id = at.id();
        self.node.execute(params![
            format!("{id}_{}", row.name),
            id,
            row.order as i64,
            row.name,
            row.kind,
            row.parent,
            row.children,
            row.precision,
            row.overflow,
            row.micro_step,
            row.link,
            row.stack,
            row.input,
            row.output,
            at.source,
            row.tensors,
            at.step as i64,
            at.rank as i64,
            row.is_distributed,
        ])?;
        Ok(())
    }

    /// Writes a stack.
    pub(crate) fn stack(&mut self, id: &str, frames: &str) -> rusqlite::Result<()> {
        self.stack.execute(params![id, frames])?;
        Ok(())
    }
}
