-- The shop: its tables, and what its application does in one transaction.

CREATE TABLE stock (
    item text PRIMARY KEY,
    left_over int NOT NULL CHECK (left_over >= 0)
);
INSERT INTO stock VALUES ('boat', 3), ('anchor', 1);

CREATE TABLE orders (
    id    int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    item  text NOT NULL REFERENCES stock,
    state text NOT NULL DEFAULT 'ordered',
    task  uuid
);

-- Takes an item from the stock, writes the order, and starts the task that ships it: all of it, or none.
CREATE FUNCTION place_order(wanted text) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
    placed int;
BEGIN
    INSERT INTO orders (item) VALUES (wanted) RETURNING id INTO placed;
    UPDATE orders SET task = windlass_start('ship', jsonb_build_object('order', placed, 'item', wanted))
        WHERE id = placed;
    UPDATE stock SET left_over = left_over - 1 WHERE item = wanted;
    RETURN placed;
END
$$;
