-- What a node says of itself beyond its size.
ALTER TABLE nodes
    -- By name: {"zone": "z1"}.
    ADD COLUMN labels   jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(labels) = 'object'),
    -- [{"key": "maintenance", "value": null}]
    ADD COLUMN taints   jsonb NOT NULL DEFAULT '[]' CHECK (jsonb_typeof(taints) = 'array'),
    -- Amounts by name: {"fpga": 2}.
    ADD COLUMN extended jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(extended) = 'object'),
    -- Its NUMA zones and device links, as registered; NULL when not known.
    ADD COLUMN topology jsonb CHECK (jsonb_typeof(topology) = 'object');

CREATE INDEX nodes_by_label ON nodes USING gin (labels jsonb_path_ops);
