//! Drift is found, and what is missing is made, on a real Postgres.

use chassis::warm::schema;
use sqlx::{Connection, Executor, PgConnection, raw_sql};
use table::Drift;
use testkit::Scratch;

const DDL: &str = "
    CREATE TABLE parents (id bigint NOT NULL, CONSTRAINT parents_pkey PRIMARY KEY (id));
    CREATE TABLE things (
        name text NOT NULL,
        amount bigint NOT NULL DEFAULT 0,
        parent bigint,
        note text,
        spare text,
        CONSTRAINT things_pkey PRIMARY KEY (name),
        CONSTRAINT things_amount_check CHECK (amount >= 0),
        CONSTRAINT things_parent_fkey FOREIGN KEY (parent) REFERENCES parents (id)
    ) WITH (fillfactor = 80);
    COMMENT ON TABLE things IS 'Things.';
    COMMENT ON COLUMN things.amount IS 'Of it.';
    CREATE INDEX things_by_amount ON things (amount DESC) WHERE amount > 0;
    CREATE UNIQUE INDEX things_one_note ON things (note);
    CREATE VIEW large AS SELECT name FROM things WHERE amount > 100;
    COMMENT ON VIEW large IS 'Large things.';
    COMMENT ON COLUMN large.name IS 'A thing''s.';
";

async fn connect(scratch: &Scratch) -> PgConnection {
    PgConnection::connect_with(&scratch.options())
        .await
        .unwrap()
}

fn lines(drifts: &[Drift]) -> Vec<String> {
    drifts.iter().map(Drift::to_string).collect()
}

/// Changes the tables, and says what is then found, and what still is after `ensure`.
async fn check(change: &str, found: &[&str], left: &[&str]) {
    let scratch = Scratch::open("drift").await;
    let mut connection = connect(&scratch).await;
    assert_eq!(
        schema::ensure(&mut connection, DDL).await.unwrap(),
        [],
        "fresh"
    );
    assert_eq!(schema::diff(&mut connection, DDL).await.unwrap(), []);
    connection.execute(raw_sql(change)).await.unwrap();
    let drifts = schema::diff(&mut connection, DDL).await.unwrap();
    assert_eq!(lines(&drifts), found, "{change}");
    for time in ["once", "twice"] {
        let drifts = schema::ensure(&mut connection, DDL).await.unwrap();
        assert_eq!(lines(&drifts), left, "{change}, ensured {time}");
        let drifts = schema::diff(&mut connection, DDL).await.unwrap();
        assert_eq!(lines(&drifts), left, "{change}, ensured {time}");
    }
    connection.close().await.unwrap();
    scratch.close().await;
}

/// What is missing, or may be replaced.
async fn mended(change: &str, found: &str) {
    check(change, &[found], &[]).await;
}

/// What is there is left to a person.
async fn stays(change: &str, found: &str) {
    check(change, &[found], &[found]).await;
}

#[tokio::test]
async fn what_is_missing_is_named_and_made() {
    mended(
        "DROP VIEW large",
        "large: view missing, expected  SELECT name\n   FROM things\n  WHERE (amount > 100)",
    )
    .await;
    check(
        "DROP TABLE parents CASCADE",
        &[
            "parents: table missing",
            "things.things_parent_fkey: foreign_key missing, expected FOREIGN KEY (parent) REFERENCES parents(id)",
        ],
        &[],
    )
    .await;
}

#[tokio::test]
async fn a_table_that_has_become_a_view_gives_way() {
    check(
        "DROP VIEW large; CREATE TABLE large (name text)",
        &[
            "large: table extra",
            "large: view missing, expected  SELECT name\n   FROM things\n  WHERE (amount > 100)",
        ],
        &[],
    )
    .await;
}

#[tokio::test]
async fn parts_that_are_missing_are_named_and_made() {
    mended(
        "ALTER TABLE things DROP spare",
        "things.spare: column missing",
    )
    .await;
    mended(
        "ALTER TABLE things DROP CONSTRAINT things_amount_check",
        "things.things_amount_check: check missing, expected CHECK ((amount >= 0))",
    )
    .await;
    mended(
        "ALTER TABLE things DROP CONSTRAINT things_pkey",
        "things.things_pkey: primary_key missing, expected PRIMARY KEY (name)",
    )
    .await;
    mended(
        "ALTER TABLE things DROP CONSTRAINT things_parent_fkey",
        "things.things_parent_fkey: foreign_key missing, expected FOREIGN KEY (parent) REFERENCES parents(id)",
    )
    .await;
    mended(
        "ALTER TABLE things ALTER amount DROP DEFAULT",
        "things.amount: default missing, expected 0",
    )
    .await;
    mended(
        "DROP INDEX things_by_amount",
        "things.things_by_amount: index missing, expected CREATE INDEX things_by_amount ON things USING btree \
         (amount DESC) WHERE (amount > 0)",
    )
    .await;
    mended(
        "COMMENT ON COLUMN things.amount IS NULL",
        "things.amount: comment missing, expected Of it.",
    )
    .await;
    mended(
        "COMMENT ON VIEW large IS NULL",
        "large: comment missing, expected Large things.",
    )
    .await;
    mended(
        "COMMENT ON COLUMN large.name IS NULL",
        "large.name: comment missing, expected A thing's.",
    )
    .await;
    mended(
        "ALTER TABLE things RESET (fillfactor)",
        "things: storage missing, expected fillfactor=80",
    )
    .await;
}

#[tokio::test]
async fn what_is_there_and_should_not_be_is_named() {
    stays("CREATE TABLE more (x text)", "more: table extra").await;
    stays(
        "CREATE VIEW more AS SELECT 1 AS one",
        "more: view extra, found  SELECT 1 AS one",
    )
    .await;
    stays(
        "ALTER TABLE things ADD more text",
        "things.more: column extra",
    )
    .await;
    stays(
        "ALTER TABLE things ADD CONSTRAINT short CHECK (length(name) < 9)",
        "things.short: check extra, found CHECK ((length(name) < 9))",
    )
    .await;
    stays(
        "CREATE INDEX more ON things (parent)",
        "things.more: index extra, found CREATE INDEX more ON things USING btree (parent)",
    )
    .await;
    stays(
        "ALTER TABLE things ADD CONSTRAINT one_parent UNIQUE (parent)",
        "things.one_parent: unique extra, found UNIQUE (parent)",
    )
    .await;
}

#[tokio::test]
async fn what_is_otherwise_is_named() {
    stays(
        "ALTER TABLE things ALTER note TYPE varchar(9)",
        "things.note: type different, expected text, found character varying(9)",
    )
    .await;
    stays(
        "ALTER TABLE things ALTER amount SET DEFAULT 7",
        "things.amount: default different, expected 0, found 7",
    )
    .await;
    stays(
        "ALTER TABLE things ALTER note SET NOT NULL",
        "things.note: nullability different, expected NULL, found NOT NULL",
    )
    .await;
    stays(
        "DROP INDEX things_one_note; CREATE INDEX things_one_note ON things (note)",
        "things.things_one_note: index different, expected CREATE UNIQUE INDEX things_one_note ON things USING btree \
         (note), found CREATE INDEX things_one_note ON things USING btree (note)",
    )
    .await;
    stays(
        "ALTER TABLE things DROP CONSTRAINT things_pkey;
         ALTER TABLE things ADD CONSTRAINT things_pkey PRIMARY KEY (name, amount)",
        "things.things_pkey: primary_key different, expected PRIMARY KEY (name), found PRIMARY KEY (name, amount)",
    )
    .await;
    stays(
        "ALTER TABLE things SET (fillfactor = 70)",
        "things: storage different, expected fillfactor=80, found fillfactor=70",
    )
    .await;
}

/// A check, a comment and a view are their build's.
#[tokio::test]
async fn checks_comments_and_views_of_another_build_are_replaced() {
    mended(
        "CREATE OR REPLACE VIEW large AS SELECT name FROM things WHERE amount > 7",
        "large: view different, expected  SELECT name\n   FROM things\n  WHERE (amount > 100), found  SELECT name\n   FROM things\n  WHERE (amount > 7)",
    )
    .await;
    mended(
        "ALTER TABLE things DROP CONSTRAINT things_amount_check;
         ALTER TABLE things ADD CONSTRAINT things_amount_check CHECK (amount > 0)",
        "things.things_amount_check: check different, expected CHECK ((amount >= 0)), found CHECK ((amount > 0))",
    )
    .await;
    mended(
        "COMMENT ON TABLE things IS 'Others.'",
        "things: comment different, expected Things., found Others.",
    )
    .await;
}

#[tokio::test]
async fn of_many_at_once_one_makes_the_tables() {
    let scratch = Scratch::open("drift_at_once").await;
    for change in [
        "",
        "DROP VIEW large; DROP TABLE things",
        "DROP INDEX things_one_note",
    ] {
        scratch.pool().execute(raw_sql(change)).await.unwrap();
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..4 {
            let mut connection = connect(&scratch).await;
            tasks.spawn(async move { schema::ensure(&mut connection, DDL).await.unwrap() });
        }
        for left in tasks.join_all().await {
            assert_eq!(left, [], "{change}");
        }
    }
    let mut connection = connect(&scratch).await;
    assert_eq!(schema::diff(&mut connection, DDL).await.unwrap(), []);
    connection.close().await.unwrap();
    scratch.close().await;
}

#[tokio::test]
async fn rows_stay_unless_a_column_is_missing_or_they_break_a_check() {
    let scratch = Scratch::open("drift_rows").await;
    let mut connection = connect(&scratch).await;
    schema::ensure(&mut connection, DDL).await.unwrap();
    let mut rows = async |change: &str| -> i64 {
        connection.execute(raw_sql(change)).await.unwrap();
        schema::ensure(&mut connection, DDL).await.unwrap();
        let count = sqlx::query_scalar("SELECT count(*) FROM things");
        count.fetch_one(&mut connection).await.unwrap()
    };
    let filled = "INSERT INTO things (name) VALUES ('a')";
    assert_eq!(rows(filled).await, 1);
    assert_eq!(rows("DROP INDEX things_one_note").await, 1);
    let wider = "ALTER TABLE things DROP CONSTRAINT things_amount_check;
         ALTER TABLE things ADD CONSTRAINT things_amount_check CHECK (amount > -9)";
    assert_eq!(rows(wider).await, 1);
    let broken = "INSERT INTO things (name, amount) VALUES ('b', -1)";
    assert_eq!(rows(&format!("{wider};{broken}")).await, 0);
    assert_eq!(rows(filled).await, 1);
    assert_eq!(rows("ALTER TABLE things DROP spare").await, 0);
    connection.close().await.unwrap();
    scratch.close().await;
}
