-- A worker that a gateway made has a name that no agent's worker may have. A machine of Nix's clients is one user's, and
-- what it is is not kept: its user names it again.

UPDATE workers SET name = 'compass:' || name WHERE attributes LIKE '%"executor":%';
UPDATE workers SET name = 'sccache:' || name
    WHERE attributes LIKE '%"exclusive":["sccache"]%' AND attributes NOT LIKE '%"sccache.server":%';
UPDATE workers SET name = 'nix:' || name, attributes = '{}'
    WHERE attributes LIKE '%"exclusive":["nix"]%' AND attributes NOT LIKE '%"farm"%';
