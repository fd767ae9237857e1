-- Messages to webhooks that wait to be delivered. A node that delivers one moves `due_at` first, so that no other does.

CREATE TABLE outbox (
    id $name PRIMARY KEY,
    study $integer NOT NULL,
    webhook $name NOT NULL,
    event TEXT NOT NULL,
    body TEXT NOT NULL,
    created_at $real NOT NULL,
    due_at $real NOT NULL,
    attempts $integer NOT NULL
) $keyed;

CREATE INDEX outbox_by_webhook ON outbox (webhook, due_at);

-- Work that one node does at a time. A claim ends when it is released or at its time, if its node died.

CREATE TABLE claims (
    name $name PRIMARY KEY,
    holder TEXT NOT NULL,
    until $real NOT NULL
) $keyed;
