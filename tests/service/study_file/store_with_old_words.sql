BEGIN TRANSACTION;
CREATE TABLE archived_counts (
    study INTEGER NOT NULL,
    version INTEGER NOT NULL,
    kind INTEGER NOT NULL,
    candidate INTEGER NOT NULL,
    arm TEXT NOT NULL,
    excluded INTEGER NOT NULL,
    numbered INTEGER NOT NULL,
    events INTEGER NOT NULL,
    PRIMARY KEY (study, version, kind, candidate, arm, excluded, numbered)
) STRICT, WITHOUT ROWID;
CREATE TABLE archived_rounds (
    study INTEGER NOT NULL,
    version INTEGER NOT NULL,
    until_sequence INTEGER NOT NULL,
    events INTEGER NOT NULL,
    first_sequence INTEGER NOT NULL,
    last_sequence INTEGER NOT NULL,
    PRIMARY KEY (study, version, until_sequence)
) STRICT, WITHOUT ROWID;
CREATE TABLE archived_senders (
    study INTEGER NOT NULL,
    key_prefix TEXT NOT NULL,
    source TEXT NOT NULL,
    kind INTEGER NOT NULL,
    events INTEGER NOT NULL,
    PRIMARY KEY (study, key_prefix, source, kind)
) STRICT, WITHOUT ROWID;
CREATE TABLE archived_sources (
    study INTEGER NOT NULL,
    source TEXT NOT NULL,
    events INTEGER NOT NULL,
    first_position INTEGER NOT NULL,
    last_position INTEGER NOT NULL,
    PRIMARY KEY (study, source)
) STRICT, WITHOUT ROWID;
CREATE TABLE audit (
    sequence INTEGER PRIMARY KEY,
    study INTEGER NOT NULL,
    at REAL NOT NULL,
    who TEXT NOT NULL,
    action TEXT NOT NULL,
    reason TEXT NOT NULL,
    detail TEXT NOT NULL
, row_checksum INTEGER) STRICT;
INSERT INTO "audit" VALUES(1,1,1700000000.0,'ann','create','','{"warnings":[]}',1313594794);
INSERT INTO "audit" VALUES(2,1,1.70000000000017905234e+09,'ann','start','','{"from":"draft","to":"learning","round":1,"version":1}',-1299890176);
INSERT INTO "audit" VALUES(3,2,1700000000.0,'ann','create','','{"warnings":[]}',61070797);
INSERT INTO "audit" VALUES(4,2,1.7000000000001814365e+09,'ann','start','','{"from":"draft","to":"learning","round":1,"version":1}',1263889543);
INSERT INTO "audit" VALUES(5,3,1700000000.0,'ann','create','','{"warnings":[]}',-1909776337);
INSERT INTO "audit" VALUES(6,3,1.70000000000010228163e+09,'ann','start','','{"from":"draft","to":"learning","round":1,"version":1}',-1484835870);
INSERT INTO "audit" VALUES(7,1,1700003660.0,'ann','close','','{"closed":1,"round":2,"version":2,"learned_from":[1]}',-1107976110);
INSERT INTO "audit" VALUES(8,2,1700003660.0,'ann','close','','{"closed":1,"round":2,"version":2,"learned_from":[1]}',-196905647);
INSERT INTO "audit" VALUES(9,3,1700003660.0,'ann','close','','{"closed":1,"round":2,"version":2,"learned_from":[1]}',2046936175);
INSERT INTO "audit" VALUES(10,1,1700007320.0,'ann','close','','{"closed":2,"round":3,"version":3,"learned_from":[2]}',-526080168);
INSERT INTO "audit" VALUES(11,2,1700007320.0,'ann','close','','{"closed":2,"round":3,"version":3,"learned_from":[2]}',-1458408869);
INSERT INTO "audit" VALUES(12,3,1700007320.0,'ann','close','','{"closed":2,"round":3,"version":3,"learned_from":[2]}',659604325);
INSERT INTO "audit" VALUES(13,1,1700010980.0,'ann','close','','{"closed":3,"round":4,"version":4,"learned_from":[3]}',1143253853);
INSERT INTO "audit" VALUES(14,2,1700010980.0,'ann','close','','{"closed":3,"round":4,"version":4,"learned_from":[3]}',227704414);
INSERT INTO "audit" VALUES(15,3,1700010980.0,'ann','close','','{"closed":3,"round":4,"version":4,"learned_from":[3]}',-2083467424);
INSERT INTO "audit" VALUES(16,1,1.70001098024395799635e+09,'ann','pause','holiday','{"from":"learning","to":"paused","round":5,"version":5}',-580260070);
INSERT INTO "audit" VALUES(17,1,1.70001098024430036541e+09,'ann','resume','','{"from":"paused","to":"learning","round":6,"version":6,"learned_from":[4],"problems":["round 4 had no units of the learner, so it taught nothing"]}',-1148013928);
INSERT INTO "audit" VALUES(18,1,1.70001098024467873571e+09,'ann','confirm','','{"from":"learning","to":"confirming","round":7,"version":7,"learned_from":[6],"problems":["round 6 had no units of the learner, so it taught nothing"]}',-39657054);
INSERT INTO "audit" VALUES(19,1,1700014580.0,'ann','look','','{"closed":7,"round":8,"version":7}',-624953701);
CREATE TABLE closes (
    study INTEGER NOT NULL,
    round INTEGER NOT NULL,
    version INTEGER NOT NULL,
    high_water INTEGER NOT NULL,
    observed TEXT NOT NULL,
    learner_checksum TEXT NOT NULL,
    next_version INTEGER NOT NULL,
    closed_at REAL NOT NULL, row_checksum INTEGER,
    PRIMARY KEY (study, round)
) STRICT;
INSERT INTO "closes" VALUES(1,1,1,95,'{"state":"learning","engine":"sqlite","problems":[],"breaker":[{"name":"like_rate","arm":"learner","state":"holds","p_value":1.0,"since":null,"bounded":false,"judged":"control","allowed":null}],"method":3,"next":{"state":"learning","split":null,"hold":"blend","horizon":null},"learns":true,"rounds":[{"round":1,"learned":0,"after":0,"seconds":3659.999820947647,"moments":[{"arm":"control","candidate":1,"units":3,"mean":[7.333333333333333,0.33333333333333337,1.0,0.0],"cross":[[4.666666666666667,1.666666666666667,0.0,0.0],[1.666666666666667,0.6666666666666667,0.0,0.0],[0.0,0.0,0.0,0.0],[0.0,0.0,0.0,0.0]],"clipped":[0,0,0,0]},{"arm":"learner","candidate":1,"units":8,"mean":[5.25,0.625,1.0,0.0],"cross":[[23.5,-1.25,0.0,0.0],[-1.25,1.875,0.0,0.0],[0.0,0.0,0.0,0.0],[0.0,0.0,0.0,0.0]],"clipped":[0,0,0,0]},{"arm":"learner","candidate":2,"units":1,"mean":[9.0,1.0,1.0,0.0],"cross":[[0.0,0.0,0.0,0.0],[0.0,0.0,0.0,0.0],[0.0,0.0,0.0,0.0],[0.0,0.0,0.0,0.0]],"clipped":[0,0,0,0]},{"arm":"learner","candidate":3,"units":1,"mean":[5.0,0.0,1.0,0.0],"cross":[[0.0,0.0,0.0,0.0],[0.0,0.0,0.0,0.0],[0.0,0.0,0.0,0.0],[0.0,0.0,0.0,0.0]],"clipped":[0,0,0,0]},{"arm":"outside","candidate":1,"units":7,"mean":[6.0,0.42857142857142855,1.0,0.0],"cross":[[24.0,-2.220446049250313e-16,0.0,0.0],[-2.220446049250313e-16,1.714285714285714,0.0,0.0],[0.0,0.0,0.0,0.0],[0.0,0.0,0.0,0.0]],"clipped":[0,0,0,0]}],"open":true}],"senders":{"groups":{"keys":{"":{"units":20,"sums":[120.0,10.0,20.0],"evidence":{"place":1,"looks":0,"share_evidence":0.0,"cells":[],"units":[],"sums":[],"level":[],"departure":null},"departed":null}},"sources":{"":{"units":20,"sums":[120.0,10.0,20.0],"evidence":{"place":1,"looks":0,"share_evidence":0.0,"cells":[],"units":[],"sums":[],"level":[],"departure":null},"departed":null}}},"places":{"keys":1,"sources":1},"is_phase":false}}','8559acf9d1eb0aafe7ccb877493f869762b48c8f1b8652cf7ad6bde06b88fe00',2,1700003660.0,315628626);
INSERT INTO "closes" VALUES(2,1,1,95,'{"state":"learning","engine":"sqlite","problems":[],"breaker":[],"method":3,"next":{"state":"learning","split":null,"hold":"blend","horizon":null},"learns":true,"rounds":[{"round":1,"learned":0,"after":0,"seconds":3659.9998185634613,"moments":[{"arm":"learner","candidate":0,"units":9,"mean":[5.555555555555555,0.5555555555555556,1.0,0.0],"cross":[[36.22222222222222,-1.7777777777777781,0.0,0.0],[-1.7777777777777781,2.2222222222222223,0.0,0.0],[0.0,0.0,0.0,0.0],[0.0,0.0,0.0,0.0]],"clipped":[0,0,0,0]},{"arm":"learner","candidate":2,"units":1,"mean":[3.305395,0.0,1.0,0.0],"cross":[[0.0,0.0,0.0,0.0],[0.0,0.0,0.0,0.0],[0.0,0.0,0.0,0.0],[0.0,0.0,0.0,0.0]],"clipped":[0,0,0,0]}]}],"senders":{"groups":{"keys":{"":{"units":10,"sums":[53.305395,5.0,10.0],"evidence":{"place":1,"looks":0,"share_evidence":0.0,"cells":[],"units":[],"sums":[],"level":[],"departure":null},"departed":null}},"sources":{"":{"units":10,"sums":[53.305395,5.0,10.0],"evidence":{"place":1,"looks":0,"share_evidence":0.0,"cells":[],"units":[],"sums":[],"level":[],"departure":null},"departed":null}}},"places":{"keys":1,"sources":1},"is_phase":false}}','281557d82586004794a0961aac6c45b0b63fbe056cc289268bdf1e33947d8f12',2,1700003660.0,1958259686);
INSERT INTO "closes" VALUES(3,1,1,95,'{"state":"learning","engine":"sqlite","problems":[],"breaker":[],"method":3,"next":{"state":"learning","split":null,"hold":"blend","horizon":null},"learns":true,"rounds":[{"round":1,"learned":0,"after":0,"seconds":3659.9998977184296,"moments":[{"arm":"control","candidate":1,"units":3,"mean":[4.333333333333333,0.0],"cross":[[2.666666666666667,0.0],[0.0,0.0]],"clipped":[0,0]},{"arm":"learner","candidate":0,"units":3,"mean":[4.0,0.0],"cross":[[6.0,0.0],[0.0,0.0]],"clipped":[0,0]},{"arm":"learner","candidate":1,"units":4,"mean":[6.5,0.0],"cross":[[21.0,0.0],[0.0,0.0]],"clipped":[0,0]}]}],"senders":{"groups":{"keys":{"":{"units":10,"sums":[51.0],"evidence":{"place":1,"looks":0,"share_evidence":0.0,"cells":[],"units":[],"sums":[],"level":[],"departure":null},"departed":null}},"sources":{"":{"units":10,"sums":[51.0],"evidence":{"place":1,"looks":0,"share_evidence":0.0,"cells":[],"units":[],"sums":[],"level":[],"departure":null},"departed":null}}},"places":{"keys":1,"sources":1},"is_phase":false}}','0d1966e3b4cd7d157a12d7ca35cb2ffcdfd7a0d885d71db11c577d3813301f44',2,1700003660.0,-359004767);
INSERT INTO "closes" VALUES(1,2,2,190,'{"state":"learning","engine":"sqlite","problems":[],"breaker":[{"name":"like_rate","arm":"learner","state":"holds","p_value":1.0,"since":null,"bounded":false,"judged":"control","allowed":null}],"method":3,"next":{"state":"learning","split":null,"hold":"blend","horizon":null},"learns":true,"rounds":[{"round":2,"learned":1,"after":95,"seconds":3660.0,"moments":[{"arm":"control","candidate":1,"units":2,"mean":[4.0,0.0,1.0,4.0],"cross":[[2.0,0.0,0.0,2.0],[0.0,0.0,0.0,0.0],[0.0,0.0,0.0,0.0],[2.0,0.0,0.0,2.0]],"clipped":[0,0,0,0]},{"arm":"learner","candidate":1,"units":14,"mean":[5.928571428571429,0.5,1.0,6.142857142857143],"cross":[[44.92857142857142,-0.5000000000000002,0.0,41.14285714285715],[-0.5000000000000002,3.5,0.0,-0.9999999999999998],[0.0,0.0,0.0,0.0],[41.14285714285715,-0.9999999999999998,0.0,41.714285714285715]],"clipped":[0,0,0,0]},{"arm":"outside","candidate":1,"units":4,"mean":[6.5,0.75,1.0,6.5],"cross":[[19.0,-0.5,0.0,19.0],[-0.5,0.75,0.0,-0.5],[0.0,0.0,0.0,0.0],[19.0,-0.5,0.0,19.0]],"clipped":[0,0,0,0]}],"open":true}],"senders":{"groups":{"keys":{"":{"units":40,"sums":[237.0,20.0,40.0],"evidence":{"place":1,"looks":0,"share_evidence":0.0,"cells":[],"units":[],"sums":[],"level":[],"departure":null},"departed":null}},"sources":{"":{"units":40,"sums":[237.0,20.0,40.0],"evidence":{"place":1,"looks":0,"share_evidence":0.0,"cells":[],"units":[],"sums":[],"level":[],"departure":null},"departed":null}}},"places":{"keys":1,"sources":1},"is_phase":false}}','f19ffc793251eccd08423d436813c2ba27a00407c18cf4e22ea7e370ee9d4266',3,1700007320.0,-1456574578);
INSERT INTO "closes" VALUES(2,2,2,190,'{"state":"learning","engine":"sqlite","problems":[],"breaker":[],"method":3,"next":{"state":"learning","split":null,"hold":"blend","horizon":null},"learns":true,"rounds":[{"round":2,"learned":1,"after":95,"seconds":3660.0,"moments":[{"arm":"learner","candidate":0,"units":9,"mean":[5.0,0.5555555555555556,1.0,4.922821666666667],"cross":[[24.0,1.0,0.0,24.694605000000003],[1.0,2.2222222222222223,0.0,1.3858916666666667],[0.0,0.0,0.0,0.0],[24.694605000000003,1.3858916666666667,0.0,25.818077649800003]],"clipped":[0,0,0,0]},{"arm":"learner","candidate":7,"units":1,"mean":[8.223614,0.0,1.0,9.0],"cross":[[0.0,0.0,0.0,0.0],[0.0,0.0,0.0,0.0],[0.0,0.0,0.0,0.0],[0.0,0.0,0.0,0.0]],"clipped":[0,0,0,0]}]}],"senders":{"groups":{"keys":{"":{"units":20,"sums":[106.529009,10.0,20.0],"evidence":{"place":1,"looks":0,"share_evidence":0.0,"cells":[],"units":[],"sums":[],"level":[],"departure":null},"departed":null}},"sources":{"":{"units":20,"sums":[106.529009,10.0,20.0],"evidence":{"place":1,"looks":0,"share_evidence":0.0,"cells":[],"units":[],"sums":[],"level":[],"departure":null},"departed":null}}},"places":{"keys":1,"sources":1},"is_phase":false}}','0db6674e66a75d3eeb74fd6821176473dec5c09b043f6cbd2e02782acb4fcd5d',3,1700007320.0,-392327614);
INSERT INTO "closes" VALUES(3,2,2,190,'{"state":"learning","engine":"sqlite","problems":[],"breaker":[],"method":3,"next":{"state":"learning","split":null,"hold":"blend","horizon":null},"learns":true,"rounds":[{"round":2,"learned":1,"after":95,"seconds":3660.0,"moments":[{"arm":"control","candidate":1,"units":2,"mean":[6.5,6.5],"cross":[[4.5,4.5],[4.5,4.5]],"clipped":[0,0]},{"arm":"learner","candidate":0,"units":5,"mean":[4.0,4.6],"cross":[[22.0,24.0],[24.0,27.200000000000003]],"clipped":[0,0]},{"arm":"learner","candidate":1,"units":3,"mean":[5.333333333333333,5.0],"cross":[[8.666666666666668,7.000000000000001],[7.000000000000001,6.0]],"clipped":[0,0]}]}],"senders":{"groups":{"keys":{"":{"units":20,"sums":[100.0],"evidence":{"place":1,"looks":0,"share_evidence":0.0,"cells":[],"units":[],"sums":[],"level":[],"departure":null},"departed":null}},"sources":{"":{"units":20,"sums":[100.0],"evidence":{"place":1,"looks":0,"share_evidence":0.0,"cells":[],"units":[],"sums":[],"level":[],"departure":null},"departed":null}}},"places":{"keys":1,"sources":1},"is_phase":false}}','2b5913f9e68513a3e62e5776b9a85d1a3c136eab58acbf2ae6be407c39d65909',3,1700007320.0,37665177);
INSERT INTO "closes" VALUES(1,3,3,285,'{"state":"learning","engine":"sqlite","problems":[],"breaker":[{"name":"like_rate","arm":"learner","state":"holds","p_value":1.0,"since":null,"bounded":false,"judged":"control","allowed":null}],"method":3,"next":{"state":"learning","split":null,"hold":"blend","horizon":null},"learns":true,"rounds":[{"round":3,"learned":2,"after":190,"seconds":3660.0,"moments":[{"arm":"control","candidate":1,"units":6,"mean":[7.166666666666667,0.5,1.0,14.5],"cross":[[10.833333333333332,-0.5,0.0,22.5],[-0.5,1.5,0.0,-0.5],[0.0,0.0,0.0,0.0],[22.5,-0.5,0.0,47.5]],"clipped":[0,0,0,0]},{"arm":"learner","candidate":0,"units":1,"mean":[6.0,0.0,1.0,14.0],"cross":[[0.0,0.0,0.0,0.0],[0.0,0.0,0.0,0.0],[0.0,0.0,0.0,0.0],[0.0,0.0,0.0,0.0]],"clipped":[0,0,0,0]},{"arm":"learner","candidate":1,"units":8,"mean":[4.625,0.375,1.0,9.5],"cross":[[17.875,-0.875,0.0,32.5],[-0.875,1.875,0.0,-2.5],[0.0,0.0,0.0,0.0],[32.5,-2.5,0.0,62.0]],"clipped":[0,0,0,0]},{"arm":"outside","candidate":1,"units":5,"mean":[6.0,0.8,1.0,12.0],"cross":[[22.0,2.0000000000000004,0.0,44.0],[2.0000000000000004,0.8000000000000003,0.0,4.000000000000001],[0.0,0.0,0.0,0.0],[44.0,4.000000000000001,0.0,88.0]],"clipped":[0,0,0,0]}],"open":true}],"settled":[{"round":1,"after":0,"until":285}],"senders":{"groups":{"keys":{"":{"units":60,"sums":[353.0,30.0,60.0],"evidence":{"place":1,"looks":0,"share_evidence":0.0,"cells":[],"units":[],"sums":[],"level":[],"departure":null},"departed":null}},"sources":{"":{"units":60,"sums":[353.0,30.0,60.0],"evidence":{"place":1,"looks":0,"share_evidence":0.0,"cells":[],"units":[],"sums":[],"level":[],"departure":null},"departed":null}}},"places":{"keys":1,"sources":1},"is_phase":false}}','08b298b688a698a7f1bdf632be53199c91d30e7906186d58b21225f92d5844e0',4,1700010980.0,-461383593);
INSERT INTO "closes" VALUES(2,3,3,285,'{"state":"learning","engine":"sqlite","problems":[],"breaker":[{"name":"like_rate","arm":"learner","state":"holds","p_value":1.0,"since":null,"bounded":false,"judged":"control","allowed":null}],"method":3,"next":{"state":"learning","split":null,"hold":"blend","horizon":null},"learns":true,"rounds":[{"round":3,"learned":2,"after":190,"seconds":3660.0,"moments":[{"arm":"control","candidate":0,"units":2,"mean":[4.5,0.5,1.0,8.6526975],"cross":[[0.5,0.5,0.0,1.3473025],[0.5,0.5,0.0,1.3473025],[0.0,0.0,0.0,0.0],[1.3473025,1.3473025,0.0,3.6304480530125005]],"clipped":[0,0,0,0]},{"arm":"learner","candidate":0,"units":7,"mean":[6.0,0.5714285714285714,1.0,11.889087714285713],"cross":[[28.0,-3.0,0.0,53.67084199999999],[-3.0,1.714285714285714,0.0,-5.556350857142855],[0.0,0.0,0.0,0.0],[53.67084199999999,-5.556350857142855,0.0,103.20003247513941]],"clipped":[0,0,0,0]},{"arm":"learner","candidate":6,"units":1,"mean":[2.915043,0.0,1.0,6.0],"cross":[[0.0,0.0,0.0,0.0],[0.0,0.0,0.0,0.0],[0.0,0.0,0.0,0.0],[0.0,0.0,0.0,0.0]],"clipped":[0,0,0,0]}]}],"senders":{"groups":{"keys":{"":{"units":30,"sums":[160.444052,15.0,30.0],"evidence":{"place":1,"looks":0,"share_evidence":0.0,"cells":[],"units":[],"sums":[],"level":[],"departure":null},"departed":null}},"sources":{"":{"units":30,"sums":[160.444052,15.0,30.0],"evidence":{"place":1,"looks":0,"share_evidence":0.0,"cells":[],"units":[],"sums":[],"level":[],"departure":null},"departed":null}}},"places":{"keys":1,"sources":1},"is_phase":false}}','286ec5429aeee89de53542b167f8e389e13ec4dab564a1c9281a81b0d8666f46',4,1700010980.0,-1443846093);
INSERT INTO "closes" VALUES(3,3,3,285,'{"state":"learning","engine":"sqlite","problems":[],"breaker":[],"method":3,"next":{"state":"learning","split":null,"hold":"blend","horizon":null},"learns":true,"rounds":[{"round":3,"learned":2,"after":190,"seconds":3660.0,"moments":[{"arm":"control","candidate":1,"units":1,"mean":[8.0,16.0],"cross":[[0.0,0.0],[0.0,0.0]],"clipped":[0,0]},{"arm":"learner","candidate":0,"units":7,"mean":[3.7142857142857144,8.428571428571429],"cross":[[25.428571428571427,50.85714285714285],[50.85714285714285,105.7142857142857]],"clipped":[0,0]},{"arm":"learner","candidate":1,"units":2,"mean":[6.5,12.5],"cross":[[0.5,0.5],[0.5,0.5]],"clipped":[0,0]}]}],"senders":{"groups":{"keys":{"":{"units":30,"sums":[147.0],"evidence":{"place":1,"looks":0,"share_evidence":0.0,"cells":[],"units":[],"sums":[],"level":[],"departure":null},"departed":null}},"sources":{"":{"units":30,"sums":[147.0],"evidence":{"place":1,"looks":0,"share_evidence":0.0,"cells":[],"units":[],"sums":[],"level":[],"departure":null},"departed":null}}},"places":{"keys":1,"sources":1},"is_phase":false}}','52c8d0b3c6dc10096ffb3078f5fe808e285f801fbe553defacf9e763d8ad2591',4,1700010980.0,-699820688);
INSERT INTO "closes" VALUES(1,4,4,285,'{"state":"learning","engine":"sqlite","problems":[],"breaker":[],"method":3,"next":{"state":"paused","split":null,"hold":"blend","horizon":null},"learns":false,"rounds":[],"senders":{"groups":{"keys":{"":{"units":60,"sums":[353.0,30.0,60.0],"evidence":{"place":1,"looks":0,"share_evidence":0.0,"cells":[],"units":[],"sums":[],"level":[],"departure":null},"departed":null}},"sources":{"":{"units":60,"sums":[353.0,30.0,60.0],"evidence":{"place":1,"looks":0,"share_evidence":0.0,"cells":[],"units":[],"sums":[],"level":[],"departure":null},"departed":null}}},"places":{"keys":1,"sources":1},"is_phase":false}}','08b298b688a698a7f1bdf632be53199c91d30e7906186d58b21225f92d5844e0',5,1.70001098024395799635e+09,-93192554);
INSERT INTO "closes" VALUES(1,5,5,285,'{"state":"paused","engine":"sqlite","problems":["round 4 had no units of the learner, so it taught nothing"],"breaker":[{"name":"like_rate","arm":"learner","state":"holds","p_value":1.0,"since":null,"bounded":false,"judged":"control","allowed":null}],"method":3,"next":{"state":"learning","split":null,"hold":"blend","horizon":null},"learns":true,"rounds":[{"round":4,"learned":3,"after":285,"seconds":0.2439579963684082,"moments":[],"open":true}],"senders":{"groups":{"keys":{"":{"units":60,"sums":[353.0,30.0,60.0],"evidence":{"place":1,"looks":0,"share_evidence":0.0,"cells":[],"units":[],"sums":[],"level":[],"departure":null},"departed":null}},"sources":{"":{"units":60,"sums":[353.0,30.0,60.0],"evidence":{"place":1,"looks":0,"share_evidence":0.0,"cells":[],"units":[],"sums":[],"level":[],"departure":null},"departed":null}}},"places":{"keys":1,"sources":1},"is_phase":false}}','1a644250ba5484f8367ffa9e549fa7494be0b296589ec20c823f8fb33846cc77',6,1.70001098024430036541e+09,-1466118719);
INSERT INTO "closes" VALUES(1,6,6,285,'{"state":"learning","engine":"sqlite","problems":["round 6 had no units of the learner, so it taught nothing"],"breaker":[{"name":"like_rate","arm":"learner","state":"holds","p_value":1.0,"since":null,"bounded":false,"judged":"control","allowed":null}],"method":3,"next":{"state":"confirming","split":null,"hold":"blend","horizon":null},"learns":true,"rounds":[{"round":6,"learned":4,"after":285,"seconds":0.0003783702850341797,"moments":[]}],"settled":[{"round":2,"after":95,"until":285},{"round":3,"after":190,"until":285},{"round":4,"after":285,"until":285}],"senders":{"groups":{"keys":{"":{"units":60,"sums":[353.0,30.0,60.0],"evidence":{"place":1,"looks":0,"share_evidence":0.0,"cells":[],"units":[],"sums":[],"level":[],"departure":null},"departed":null}},"sources":{"":{"units":60,"sums":[353.0,30.0,60.0],"evidence":{"place":1,"looks":0,"share_evidence":0.0,"cells":[],"units":[],"sums":[],"level":[],"departure":null},"departed":null}}},"places":{"keys":1,"sources":1},"is_phase":false}}','86797f67c3d7af522dcbd245e5e2547d992a150fbc99d4271518138404ca3c06',7,1.70001098024467873571e+09,-2101921707);
INSERT INTO "closes" VALUES(1,7,7,335,'{"state":"confirming","engine":"sqlite","problems":[],"breaker":[{"name":"like_rate","arm":"blend","state":"holds","p_value":1.0,"since":null,"bounded":false,"judged":"control","allowed":null},{"name":"like_rate","arm":"single","state":"holds","p_value":1.0,"since":null,"bounded":false,"judged":"control","allowed":null}],"method":3,"next":{"state":"confirming","split":null,"hold":"blend","horizon":null},"learns":false,"rounds":[],"senders":{"groups":{"keys":{"":{"units":60,"sums":[353.0,30.0,60.0],"evidence":{"place":1,"looks":0,"share_evidence":0.0,"cells":[],"units":[],"sums":[],"level":[],"departure":null},"departed":null}},"sources":{"":{"units":60,"sums":[353.0,30.0,60.0],"evidence":{"place":1,"looks":0,"share_evidence":0.0,"cells":[],"units":[],"sums":[],"level":[],"departure":null},"departed":null}}},"places":{"keys":1,"sources":1},"is_phase":true},"look":{"elapsed":1.0,"moments":[{"arm":"blend","candidate":1,"units":9,"mean":[5.555555555555555,0.4444444444444444,1.0,16.88888888888889],"cross":[[42.22222222222222,0.7777777777777783,0.0,121.55555555555554],[0.7777777777777783,2.2222222222222223,0.0,1.4444444444444455],[0.0,0.0,0.0,0.0],[121.55555555555554,1.4444444444444455,0.0,352.8888888888889]],"clipped":[0,0,0,0]},{"arm":"control","candidate":1,"units":8,"mean":[6.125,0.5,1.0,18.25],"cross":[[22.875,0.5,0.0,67.75],[0.5,2.0,0.0,2.0],[0.0,0.0,0.0,0.0],[67.75,2.0,0.0,201.5]],"clipped":[0,0,0,0]},{"arm":"single","candidate":2,"units":3,"mean":[7.0,0.6666666666666666,1.0,18.333333333333332],"cross":[[8.0,0.0,0.0,26.0],[0.0,0.6666666666666667,0.0,0.3333333333333339],[0.0,0.0,0.0,0.0],[26.0,0.3333333333333339,0.0,84.66666666666667]],"clipped":[0,0,0,0]}]}}','86797f67c3d7af522dcbd245e5e2547d992a150fbc99d4271518138404ca3c06',7,1700014580.0,639530044);
CREATE TABLE event_ids (
    digest BLOB PRIMARY KEY,
    content INTEGER
) STRICT, WITHOUT ROWID;
INSERT INTO "event_ids" VALUES(X'01BC7CD2061ECC3D501EB248',-1377632165);
INSERT INTO "event_ids" VALUES(X'01BC7CD20702F778FEC9745E',-484763080);
INSERT INTO "event_ids" VALUES(X'01BC7CD209CBE859E454F869',1068657578);
INSERT INTO "event_ids" VALUES(X'01BC7CD220B28C62B08047C6',-492151512);
INSERT INTO "event_ids" VALUES(X'01BC7CD22E1817A32E26F350',-1919483527);
INSERT INTO "event_ids" VALUES(X'01BC7CD231462EDE9662EE21',-1648275412);
INSERT INTO "event_ids" VALUES(X'01BC7CD23984CD9EAC3D4D5E',-473712208);
INSERT INTO "event_ids" VALUES(X'01BC7CD239D7794B4EBA3A87',1363046635);
INSERT INTO "event_ids" VALUES(X'01BC7CD2494C136038326AF3',773367094);
INSERT INTO "event_ids" VALUES(X'01BC7CD253C1024EC4E6F0C4',-1016128742);
INSERT INTO "event_ids" VALUES(X'01BC7CD25A1B911D4433DE38',-213038227);
INSERT INTO "event_ids" VALUES(X'01BC7CD2713DDC2365024629',-600607662);
INSERT INTO "event_ids" VALUES(X'01BC7CD273DEA1B0117660E4',-389040906);
INSERT INTO "event_ids" VALUES(X'01BC7CD2744D05138C516D4D',514821648);
INSERT INTO "event_ids" VALUES(X'01BC7CD27B78BA05C92BD1FE',-1651734283);
INSERT INTO "event_ids" VALUES(X'01BC7CD27B92A9CEF16634EC',1083489911);
INSERT INTO "event_ids" VALUES(X'01BC7CD28B8EBC597BE0F4B3',-1011369838);
INSERT INTO "event_ids" VALUES(X'01BC7CD28D342DA47DA83CDB',1745136371);
INSERT INTO "event_ids" VALUES(X'01BC7CD28E6DC3F1BDA46DE6',1751824559);
INSERT INTO "event_ids" VALUES(X'01BC7CD28FBA9986DD4DF2E7',-1907731665);
INSERT INTO "event_ids" VALUES(X'01BC7CD293189947179B1515',-611285200);
INSERT INTO "event_ids" VALUES(X'01BC7CD299DD6C3FDA472E11',903316084);
INSERT INTO "event_ids" VALUES(X'01BC7CD2C87E8579BE3714CC',-1388600365);
INSERT INTO "event_ids" VALUES(X'01BC7CD2CC8F562400B6EA75',1040395450);
INSERT INTO "event_ids" VALUES(X'01BC7CD2DDF3D64D8FC7D699',109621682);
INSERT INTO "event_ids" VALUES(X'01BC7CD2DF2D795CF851C75B',19612368);
INSERT INTO "event_ids" VALUES(X'01BC7CD2E67C19EB80C0D768',1873238417);
INSERT INTO "event_ids" VALUES(X'01BC7CD2EDBB0C8D81E7B0F7',1347916915);
INSERT INTO "event_ids" VALUES(X'01BC7CD2EF1D0C96B0443594',-1924160783);
INSERT INTO "event_ids" VALUES(X'01BC7CD2FF387612F2C8D8F2',-2042384457);
INSERT INTO "event_ids" VALUES(X'1404E3C922537F2D8D04D0A3',1663979464);
INSERT INTO "event_ids" VALUES(X'1404E3C92CEA0C89336CDC5A',2131706673);
INSERT INTO "event_ids" VALUES(X'1404E3C9395D71956C6D853E',-1294704713);
INSERT INTO "event_ids" VALUES(X'1404E3C95928DF308BE24BC6',-387359605);
INSERT INTO "event_ids" VALUES(X'1404E3C95E0B8E3486555C7E',-312596288);
INSERT INTO "event_ids" VALUES(X'1404E3C97B12F5C7FF026815',489465428);
INSERT INTO "event_ids" VALUES(X'1404E3C9902A594AAF66FC31',-427129330);
INSERT INTO "event_ids" VALUES(X'1404E3C9A1B873A9EF8C7BB4',1322355855);
INSERT INTO "event_ids" VALUES(X'1404E3C9B250DA8FA33D73FD',445601078);
INSERT INTO "event_ids" VALUES(X'1404E3C9D522A0D7C68323CD',226162433);
INSERT INTO "event_ids" VALUES(X'1F690E8139E46126365083E6',-826595520);
INSERT INTO "event_ids" VALUES(X'1F690E8163E38B2BF9960E54',-57149415);
INSERT INTO "event_ids" VALUES(X'1F690E816783B5B67E9A4B77',-1112342385);
INSERT INTO "event_ids" VALUES(X'1F690E8168266B7FF32268C3',-1488069815);
INSERT INTO "event_ids" VALUES(X'1F690E816DB8B318ED19CB10',-733610874);
INSERT INTO "event_ids" VALUES(X'21B2D69C20C848FCB938CB4C',-46360117);
INSERT INTO "event_ids" VALUES(X'21B2D69C24DE5F555A4492DF',-1622551427);
INSERT INTO "event_ids" VALUES(X'21B2D69C5AD0D2C0B8ECB7C6',-1909146108);
INSERT INTO "event_ids" VALUES(X'21B2D69C5D6772BE71CCB3FB',-821016942);
INSERT INTO "event_ids" VALUES(X'21B2D69C6DCB57712C90AAC7',947741557);
INSERT INTO "event_ids" VALUES(X'21B2D69C79126691A9889D8A',1510485699);
INSERT INTO "event_ids" VALUES(X'21B2D69C9BE047EBF6E6E822',-470551253);
INSERT INTO "event_ids" VALUES(X'21B2D69C9E88BBF6E3130611',936338924);
INSERT INTO "event_ids" VALUES(X'21B2D69CB380C7F3D24074B9',687868172);
INSERT INTO "event_ids" VALUES(X'21B2D69CBB2F34D8573E6F7D',-1862544668);
INSERT INTO "event_ids" VALUES(X'21B2D69CD1021E2CE9DA50FD',1995152762);
INSERT INTO "event_ids" VALUES(X'21B2D69CD40F788C0C190996',-563270421);
INSERT INTO "event_ids" VALUES(X'21B2D69CE19CE2CA23DE60F1',-155244428);
INSERT INTO "event_ids" VALUES(X'21B2D69CF0415DEF790C1ACA',1153909283);
INSERT INTO "event_ids" VALUES(X'21B2D69CFC040D266DF457B8',-331222094);
INSERT INTO "event_ids" VALUES(X'3EDFD099002CEFF4FB79F4F0',-60953249);
INSERT INTO "event_ids" VALUES(X'3EDFD09902455A7E9EC7BBC8',1429302616);
INSERT INTO "event_ids" VALUES(X'3EDFD099088CE6E4976F5D45',-38282039);
INSERT INTO "event_ids" VALUES(X'3EDFD0991055456475741115',-2129789537);
INSERT INTO "event_ids" VALUES(X'3EDFD09913056BE68412AB32',182122798);
INSERT INTO "event_ids" VALUES(X'3EDFD099142D872635D454E2',-1372747955);
INSERT INTO "event_ids" VALUES(X'3EDFD0991995FFAF236CFD26',-1614638721);
INSERT INTO "event_ids" VALUES(X'3EDFD0992BDE5DB7698903C8',-234497456);
INSERT INTO "event_ids" VALUES(X'3EDFD0992C7E84AFEE64327E',-1085215436);
INSERT INTO "event_ids" VALUES(X'3EDFD0992E722381A1D00315',1920104902);
INSERT INTO "event_ids" VALUES(X'3EDFD09934B4B9CFED194607',-1289674042);
INSERT INTO "event_ids" VALUES(X'3EDFD0993AD6B9ADF856E2F7',111883996);
INSERT INTO "event_ids" VALUES(X'3EDFD0994D364BDD453BF758',2047940490);
INSERT INTO "event_ids" VALUES(X'3EDFD0994DDA6C7244B95618',-1322529629);
INSERT INTO "event_ids" VALUES(X'3EDFD09959469F599E258E0B',-584736638);
INSERT INTO "event_ids" VALUES(X'3EDFD0996CD57E92332BD82C',-1921240467);
INSERT INTO "event_ids" VALUES(X'3EDFD0996DAAD0E05B7D2530',1802272243);
INSERT INTO "event_ids" VALUES(X'3EDFD09993DDBF9C8A7FA363',1518562241);
INSERT INTO "event_ids" VALUES(X'3EDFD0999B33207F5F7A822A',696994830);
INSERT INTO "event_ids" VALUES(X'3EDFD099A6D284D8B852110D',152645701);
INSERT INTO "event_ids" VALUES(X'3EDFD099B66DFA565C038914',1274937784);
INSERT INTO "event_ids" VALUES(X'3EDFD099C80D744B6E215D47',955655799);
INSERT INTO "event_ids" VALUES(X'3EDFD099C8BD249981ADDE43',1973621011);
INSERT INTO "event_ids" VALUES(X'3EDFD099CAA3BDB60F625112',641288855);
INSERT INTO "event_ids" VALUES(X'3EDFD099D0154E2CCBE8F82E',409229884);
INSERT INTO "event_ids" VALUES(X'3EDFD099D4BF6A1E9544C97B',-1900020986);
INSERT INTO "event_ids" VALUES(X'3EDFD099D9B1595B6CF34E9C',-322259280);
INSERT INTO "event_ids" VALUES(X'3EDFD099E81DD856D9AF4DFB',-1583382060);
INSERT INTO "event_ids" VALUES(X'3EDFD099F54B65E5D94CF1CA',881322373);
INSERT INTO "event_ids" VALUES(X'3EDFD099FED3AE9B0FBCCC25',463967063);
INSERT INTO "event_ids" VALUES(X'494528800902377115B6FE08',45582085);
INSERT INTO "event_ids" VALUES(X'494528802E2A4BE826BBC4CB',-493659964);
INSERT INTO "event_ids" VALUES(X'49452880460DDB955233F42B',-336379708);
INSERT INTO "event_ids" VALUES(X'494528805FEAFC130999E25B',316790352);
INSERT INTO "event_ids" VALUES(X'494528808FE80F8C5078B5F7',-381159926);
INSERT INTO "event_ids" VALUES(X'49452880929D7C258442C03C',1092418699);
INSERT INTO "event_ids" VALUES(X'49452880A56888650137317B',1826832332);
INSERT INTO "event_ids" VALUES(X'49452880D0F3C5166104A5D1',-1122422861);
INSERT INTO "event_ids" VALUES(X'49452880D45079D53CD1DA25',-417059697);
INSERT INTO "event_ids" VALUES(X'49452880FC5F8B96BA5D2CED',1891775285);
INSERT INTO "event_ids" VALUES(X'4C51639B03D8E5FA52A6303C',835175650);
INSERT INTO "event_ids" VALUES(X'4C51639B4052A0CE52446794',-436513755);
INSERT INTO "event_ids" VALUES(X'4C51639B9DA0BC3BD96BA4BF',1120920365);
INSERT INTO "event_ids" VALUES(X'4C51639BAAB686AC2F5B15ED',1893940340);
INSERT INTO "event_ids" VALUES(X'4C51639BB3879CB6DD597B89',-1762429974);
INSERT INTO "event_ids" VALUES(X'6203C4A213A469760DB60590',1404209492);
INSERT INTO "event_ids" VALUES(X'6203C4A26CCF5042F3594522',1637766669);
INSERT INTO "event_ids" VALUES(X'6203C4A26FA749B391886657',-192528804);
INSERT INTO "event_ids" VALUES(X'6203C4A28A89E9565ACE2123',549105307);
INSERT INTO "event_ids" VALUES(X'6203C4A2ADF5E51ABD1026B4',-2020730477);
INSERT INTO "event_ids" VALUES(X'68B18E832BE24ECA5CC4C0BB',2136218587);
INSERT INTO "event_ids" VALUES(X'68B18E833C657B1FAF754EE0',-2040182838);
INSERT INTO "event_ids" VALUES(X'68B18E834022744217E3E87B',228742281);
INSERT INTO "event_ids" VALUES(X'68B18E83402689520F936225',1677126720);
INSERT INTO "event_ids" VALUES(X'68B18E83458882FCFD4DF201',-598194954);
INSERT INTO "event_ids" VALUES(X'68B18E835A014EA6463740F2',-2012832433);
INSERT INTO "event_ids" VALUES(X'68B18E836CB231D0CE5BFD6F',1939914005);
INSERT INTO "event_ids" VALUES(X'68B18E83B73F8C734F50CED2',1946373751);
INSERT INTO "event_ids" VALUES(X'68B18E83DEFD370E590A4A17',-2083376255);
INSERT INTO "event_ids" VALUES(X'68B18E83E240701B78CF856A',543004622);
INSERT INTO "event_ids" VALUES(X'6D7BB5EC08DE0E62E504DBD1',-877173721);
INSERT INTO "event_ids" VALUES(X'6D7BB5EC0B99F464BA429CD7',-653670603);
INSERT INTO "event_ids" VALUES(X'6D7BB5EC13B82727EEE667D9',765930425);
INSERT INTO "event_ids" VALUES(X'6D7BB5EC1BAFC70919C43725',-1970037583);
INSERT INTO "event_ids" VALUES(X'6D7BB5EC3CB2BAB5DDE3D895',1276227428);
INSERT INTO "event_ids" VALUES(X'6D7BB5EC428682D6B5F30A55',2117955645);
INSERT INTO "event_ids" VALUES(X'6D7BB5EC730841C1B249EE1C',221599730);
INSERT INTO "event_ids" VALUES(X'6D7BB5ECA347D09F5166A05B',-107234434);
INSERT INTO "event_ids" VALUES(X'6D7BB5ECC8326F72FAE47CF1',1588530294);
INSERT INTO "event_ids" VALUES(X'6D7BB5ECEAD91E5870A5E76E',-1442717446);
INSERT INTO "event_ids" VALUES(X'6EA5AB6604A35B07D5A12864',-387526393);
INSERT INTO "event_ids" VALUES(X'6EA5AB6607D05DA62DA0EA88',1866472004);
INSERT INTO "event_ids" VALUES(X'6EA5AB661FF7F5AD8D0116AF',1339188751);
INSERT INTO "event_ids" VALUES(X'6EA5AB6641028B0828C1D2D4',1020936640);
INSERT INTO "event_ids" VALUES(X'6EA5AB664F2A24F78C078F81',474496395);
INSERT INTO "event_ids" VALUES(X'6EA5AB665D8F108CB575AF7E',1567409437);
INSERT INTO "event_ids" VALUES(X'6EA5AB6681DED72FF173E80B',-1149465981);
INSERT INTO "event_ids" VALUES(X'6EA5AB6688A6C096ACF6542A',-1678838072);
INSERT INTO "event_ids" VALUES(X'6EA5AB669F172BC29763A2B5',-624292258);
INSERT INTO "event_ids" VALUES(X'6EA5AB66E7C406746E3A2B5A',-931877556);
INSERT INTO "event_ids" VALUES(X'87817D1107CC5FA540228726',-482327854);
INSERT INTO "event_ids" VALUES(X'87817D110A3C0369208FF68B',901841479);
INSERT INTO "event_ids" VALUES(X'87817D110B7DC0FDF9E474DB',-132505919);
INSERT INTO "event_ids" VALUES(X'87817D1127496621C78DB96A',-2045184163);
INSERT INTO "event_ids" VALUES(X'87817D11277AD14552921F90',1745136371);
INSERT INTO "event_ids" VALUES(X'87817D112C5A58166A414DAE',-1386153159);
INSERT INTO "event_ids" VALUES(X'87817D1144DACAE6A0C9CDBE',-1937957245);
INSERT INTO "event_ids" VALUES(X'87817D114507D67590B71D57',1068657578);
INSERT INTO "event_ids" VALUES(X'87817D114915FE0A9B0060E0',-2042384457);
INSERT INTO "event_ids" VALUES(X'87817D114B0EDAD04521644C',24123962);
INSERT INTO "event_ids" VALUES(X'87817D1154D3335B07262E32',903316084);
INSERT INTO "event_ids" VALUES(X'87817D115752C7161A4FCC01',-388418363);
INSERT INTO "event_ids" VALUES(X'87817D11660463D868816572',-611285200);
INSERT INTO "event_ids" VALUES(X'87817D116A97F0D0E951DD5D',1878786427);
INSERT INTO "event_ids" VALUES(X'87817D116D50D285E12A68DA',-1016128742);
INSERT INTO "event_ids" VALUES(X'87817D11712A40A7ABB91D0E',-1768553088);
INSERT INTO "event_ids" VALUES(X'87817D1178E9E7A8311AA5B1',109621682);
INSERT INTO "event_ids" VALUES(X'87817D11871576B3E870BF81',620898371);
INSERT INTO "event_ids" VALUES(X'87817D118D2F73CBFA23DF7B',-600607662);
INSERT INTO "event_ids" VALUES(X'87817D118F866A85FB646BAE',-1915987565);
INSERT INTO "event_ids" VALUES(X'87817D11B0E79EF9BC263B87',1531779334);
INSERT INTO "event_ids" VALUES(X'87817D11B0E9FD52E3BF6C2C',1363046635);
INSERT INTO "event_ids" VALUES(X'87817D11C63CEA4F64DD70B3',1040395450);
INSERT INTO "event_ids" VALUES(X'87817D11CD60F36E9BB6CE2F',-1377632165);
INSERT INTO "event_ids" VALUES(X'87817D11CF949B87EBEC3C9E',-1648275412);
INSERT INTO "event_ids" VALUES(X'87817D11D2CB33FF98BDDD6E',-1007886216);
INSERT INTO "event_ids" VALUES(X'87817D11DCD468C7967FB7DE',1895511769);
INSERT INTO "event_ids" VALUES(X'87817D11E2EB2314DF8836EA',-1650849594);
INSERT INTO "event_ids" VALUES(X'87817D11E333DE242FA1895C',514821648);
INSERT INTO "event_ids" VALUES(X'87817D11E9192EC20E476D68',777354735);
INSERT INTO "event_ids" VALUES(X'A1BD34E90106A88421F5DA27',1900567974);
INSERT INTO "event_ids" VALUES(X'A1BD34E9538E3ACFF64361BC',37780073);
INSERT INTO "event_ids" VALUES(X'A1BD34E955B1E53F3F5FB156',-696456530);
INSERT INTO "event_ids" VALUES(X'A1BD34E9747828E8C4BC4692',-1519071903);
INSERT INTO "event_ids" VALUES(X'A1BD34E9954986E6478B0283',1130660607);
INSERT INTO "event_ids" VALUES(X'A2DD08B50BD1AEAA67DE257F',-728766016);
INSERT INTO "event_ids" VALUES(X'A2DD08B5137ABF0E20593A9C',-1472870250);
INSERT INTO "event_ids" VALUES(X'A2DD08B515E80440CD146CE3',1941659336);
INSERT INTO "event_ids" VALUES(X'A2DD08B5248CD4F2499E8DEE',-973962311);
INSERT INTO "event_ids" VALUES(X'A2DD08B53497D30323C4D232',1112819962);
INSERT INTO "event_ids" VALUES(X'A2DD08B5439C3FB35C71E095',298718078);
INSERT INTO "event_ids" VALUES(X'A2DD08B5506B1F49A76BE2DA',828141365);
INSERT INTO "event_ids" VALUES(X'A2DD08B552697C3173A552E0',-1771513795);
INSERT INTO "event_ids" VALUES(X'A2DD08B55C4630A83C5B6242',251756446);
INSERT INTO "event_ids" VALUES(X'A2DD08B56F81ED6EF511FADF',-2028621244);
INSERT INTO "event_ids" VALUES(X'A2DD08B579253B3B0FFCB9AA',-2002275107);
INSERT INTO "event_ids" VALUES(X'A2DD08B5856AAD2C117ED72A',539034956);
INSERT INTO "event_ids" VALUES(X'A2DD08B58A44F937C09D8D91',2080987217);
INSERT INTO "event_ids" VALUES(X'A2DD08B591D8F2959EA23A3A',-969848110);
INSERT INTO "event_ids" VALUES(X'A2DD08B59887595A16CEEAFB',-616698023);
INSERT INTO "event_ids" VALUES(X'A2DD08B59D5B9A1801BEC81A',798163925);
INSERT INTO "event_ids" VALUES(X'A2DD08B5A6E60D2780F89861',-287093171);
INSERT INTO "event_ids" VALUES(X'A2DD08B5A9CBE8B7C1A07CDC',-199387765);
INSERT INTO "event_ids" VALUES(X'A2DD08B5AA0C753E0AD3A42B',-941917372);
INSERT INTO "event_ids" VALUES(X'A2DD08B5AC0A068044F6B61F',-446627854);
INSERT INTO "event_ids" VALUES(X'A2DD08B5B679D55B683B0EE2',-682876757);
INSERT INTO "event_ids" VALUES(X'A2DD08B5C1F67434C7919FC2',11761927);
INSERT INTO "event_ids" VALUES(X'A2DD08B5CBABDA48706FCE33',-72379630);
INSERT INTO "event_ids" VALUES(X'A2DD08B5D9826CA88A3B80AB',1100448145);
INSERT INTO "event_ids" VALUES(X'A2DD08B5EAB2908342846A1C',1857551171);
INSERT INTO "event_ids" VALUES(X'A2DD08B5EE001511176C6A92',1553671194);
INSERT INTO "event_ids" VALUES(X'A2DD08B5F19C7297543D27C6',1357573096);
INSERT INTO "event_ids" VALUES(X'A2DD08B5F2E8C5529A8610F3',-1225087882);
INSERT INTO "event_ids" VALUES(X'A2DD08B5F7B008AE7E512A88',1657156785);
INSERT INTO "event_ids" VALUES(X'A2DD08B5F9BBDCFBFA354E30',-384749568);
INSERT INTO "event_ids" VALUES(X'A60EE149255F3EDD7EA1341E',-359761474);
INSERT INTO "event_ids" VALUES(X'A60EE149350D98E988B26847',1831383805);
INSERT INTO "event_ids" VALUES(X'A60EE14938342B5572F07DA5',-1719247247);
INSERT INTO "event_ids" VALUES(X'A60EE1493D06CCE3BFD0C432',-904133131);
INSERT INTO "event_ids" VALUES(X'A60EE1494FF950BB830F374C',-1189862854);
INSERT INTO "event_ids" VALUES(X'A60EE14969055565EABDADF5',1051912569);
INSERT INTO "event_ids" VALUES(X'A60EE149745A91A7C18A79BB',1304088246);
INSERT INTO "event_ids" VALUES(X'A60EE149792C46D335AE1FDF',-1544881668);
INSERT INTO "event_ids" VALUES(X'A60EE149CAF52D102BD760BA',2140541423);
INSERT INTO "event_ids" VALUES(X'A60EE149D698F75CCC5FF5D9',-131016020);
INSERT INTO "event_ids" VALUES(X'B03E9D26002E50A77B8993B7',-1873014150);
INSERT INTO "event_ids" VALUES(X'B03E9D2602DD0B666D21DF96',1296311544);
INSERT INTO "event_ids" VALUES(X'B03E9D2604F259977F54CE15',2042160220);
INSERT INTO "event_ids" VALUES(X'B03E9D260B526B971F22953E',944422946);
INSERT INTO "event_ids" VALUES(X'B03E9D260CDFB4FBB27EF459',141070421);
INSERT INTO "event_ids" VALUES(X'B03E9D260D036BDF65C43B6C',-1626337173);
INSERT INTO "event_ids" VALUES(X'B03E9D261266EF789DA15613',-1532964130);
INSERT INTO "event_ids" VALUES(X'B03E9D2613314C173E049F7F',1715218588);
INSERT INTO "event_ids" VALUES(X'B03E9D26158C5DA616E66A5F',-1707476060);
INSERT INTO "event_ids" VALUES(X'B03E9D261AA678D03A2561BD',1183877686);
INSERT INTO "event_ids" VALUES(X'B03E9D2637EAFAFC7FA26E18',683946751);
INSERT INTO "event_ids" VALUES(X'B03E9D26417FAE0E394B929A',1179134398);
INSERT INTO "event_ids" VALUES(X'B03E9D2642274F21A7476C26',-1948324383);
INSERT INTO "event_ids" VALUES(X'B03E9D264BE61A98836A9288',-1685537612);
INSERT INTO "event_ids" VALUES(X'B03E9D264C36307AE1772F21',1915486958);
INSERT INTO "event_ids" VALUES(X'B03E9D26593E13BDB8A2971E',-2022920151);
INSERT INTO "event_ids" VALUES(X'B03E9D26598330D4A17086EE',-846251267);
INSERT INTO "event_ids" VALUES(X'B03E9D265987BD977A3C4E93',-903034465);
INSERT INTO "event_ids" VALUES(X'B03E9D266A78EFAA39A99571',-1155260898);
INSERT INTO "event_ids" VALUES(X'B03E9D266CFC00D44C91BCED',1726253844);
INSERT INTO "event_ids" VALUES(X'B03E9D266D7972A23982A121',-170130307);
INSERT INTO "event_ids" VALUES(X'B03E9D26762C0E9E2CAD2D70',600326073);
INSERT INTO "event_ids" VALUES(X'B03E9D268B25781BD47D3BD0',672960887);
INSERT INTO "event_ids" VALUES(X'B03E9D26B24C4237F14B5A9D',-714037545);
INSERT INTO "event_ids" VALUES(X'B03E9D26B2DEC720598F383A',-450941319);
INSERT INTO "event_ids" VALUES(X'B03E9D26B9C96A5CCA8A2C1B',1193397542);
INSERT INTO "event_ids" VALUES(X'B03E9D26C00DBAFA70E44CDC',-1560075844);
INSERT INTO "event_ids" VALUES(X'B03E9D26C7BAFA8A4ED34439',-1953286856);
INSERT INTO "event_ids" VALUES(X'B03E9D26DBE3D7AE56696EA0',-189407003);
INSERT INTO "event_ids" VALUES(X'B03E9D26E20CB5656480F2CA',2115704638);
INSERT INTO "event_ids" VALUES(X'B21C1322037D17D233DCBA00',-682876757);
INSERT INTO "event_ids" VALUES(X'B21C13220D412E94A5D74C9F',-72379630);
INSERT INTO "event_ids" VALUES(X'B21C13222C08B2C7F84D4387',1429302616);
INSERT INTO "event_ids" VALUES(X'B21C13222FAC5E303DF69F55',-38282039);
INSERT INTO "event_ids" VALUES(X'B21C132231A847CFF4C4C576',-2028621244);
INSERT INTO "event_ids" VALUES(X'B21C1322336224BF5DB33059',-969848110);
INSERT INTO "event_ids" VALUES(X'B21C132237F4AC03F212A851',1973621011);
INSERT INTO "event_ids" VALUES(X'B21C13223DD2BCD0756E8274',11761927);
INSERT INTO "event_ids" VALUES(X'B21C13224B349F8ACFD9FA5D',1395204739);
INSERT INTO "event_ids" VALUES(X'B21C132251F4E67817C7EA65',2080987217);
INSERT INTO "event_ids" VALUES(X'B21C13225E3CF05D81F69A7D',-761813477);
INSERT INTO "event_ids" VALUES(X'B21C1322767C3A830C6DA839',1553671194);
INSERT INTO "event_ids" VALUES(X'B21C132286089F8DB7CDAE21',881322373);
INSERT INTO "event_ids" VALUES(X'B21C132288C192449BA3AE4D',-199387765);
INSERT INTO "event_ids" VALUES(X'B21C1322893CCC1C078C5403',-322259280);
INSERT INTO "event_ids" VALUES(X'B21C132289E246DEC8B96A1E',-1677633516);
INSERT INTO "event_ids" VALUES(X'B21C13228D31D6EAAA3DADA6',1274937784);
INSERT INTO "event_ids" VALUES(X'B21C1322A2438B851E3AF55A',-973962311);
INSERT INTO "event_ids" VALUES(X'B21C1322A7F02003F9EABF93',-1484272113);
INSERT INTO "event_ids" VALUES(X'B21C1322A8BCF6D192868D32',-1921240467);
INSERT INTO "event_ids" VALUES(X'B21C1322AD11CED9C62EE5C8',-234497456);
INSERT INTO "event_ids" VALUES(X'B21C1322BAB2E27528C54D4E',-1225087882);
INSERT INTO "event_ids" VALUES(X'B21C1322BB6BE858B00F6E70',152645701);
INSERT INTO "event_ids" VALUES(X'B21C1322C4990143CBBAB962',-446627854);
INSERT INTO "event_ids" VALUES(X'B21C1322C72DF91CC03DC276',111883996);
INSERT INTO "event_ids" VALUES(X'B21C1322E54A7A82884A98DD',-866596101);
INSERT INTO "event_ids" VALUES(X'B21C1322ECE2A07EE5259B20',-1289674042);
INSERT INTO "event_ids" VALUES(X'B21C1322EF85B164518E8060',1941659336);
INSERT INTO "event_ids" VALUES(X'B21C1322F3B6A87320F02434',1112819962);
INSERT INTO "event_ids" VALUES(X'B21C1322FE6FCF586FF65D40',-1085215436);
INSERT INTO "event_ids" VALUES(X'B972E42E2BE623B789FD7B7F',-870737217);
INSERT INTO "event_ids" VALUES(X'B972E42E4398B60EA1F7DB8B',-689487495);
INSERT INTO "event_ids" VALUES(X'B972E42E50BF896E4034ED3A',-1089356432);
INSERT INTO "event_ids" VALUES(X'B972E42E63A842D3ABBFD84C',1668109667);
INSERT INTO "event_ids" VALUES(X'B972E42E646B4CD1695B8539',-1511037258);
INSERT INTO "event_ids" VALUES(X'B972E42E6A753793A4DAA1F2',-2055398659);
INSERT INTO "event_ids" VALUES(X'B972E42E9BF28AF63A9E80EA',-160088782);
INSERT INTO "event_ids" VALUES(X'B972E42EB8A2912B98CAB934',-456417760);
INSERT INTO "event_ids" VALUES(X'B972E42EB8E782A19FC9ECE0',575254005);
INSERT INTO "event_ids" VALUES(X'B972E42EF670A9DEE823B372',1363249722);
INSERT INTO "event_ids" VALUES(X'BB162FE501D0F7651BE14FBC',310812439);
INSERT INTO "event_ids" VALUES(X'BB162FE501D672A2CF15A8DC',548028494);
INSERT INTO "event_ids" VALUES(X'BB162FE50A016D059BCA48A6',-2019625146);
INSERT INTO "event_ids" VALUES(X'BB162FE519293BB1B4F0F3F8',1403152257);
INSERT INTO "event_ids" VALUES(X'BB162FE51A8DADA2450312D1',-437536016);
INSERT INTO "event_ids" VALUES(X'BB162FE524B2D1B328EAC208',-1417853697);
INSERT INTO "event_ids" VALUES(X'BB162FE54C8A71FBF20C074F',-1763467969);
INSERT INTO "event_ids" VALUES(X'BB162FE57AACCAC486F24D2C',1121914360);
INSERT INTO "event_ids" VALUES(X'BB162FE57BDB6EBC5CAC0A34',-191442807);
INSERT INTO "event_ids" VALUES(X'BB162FE5BB40EFD8402FC2DB',1046817966);
INSERT INTO "event_ids" VALUES(X'BB162FE5C25F6139D1FE7AB8',66844014);
INSERT INTO "event_ids" VALUES(X'BB162FE5C4893973A347BC12',836184631);
INSERT INTO "event_ids" VALUES(X'BB162FE5E4591A9C96EA4C55',1298991969);
INSERT INTO "event_ids" VALUES(X'BB162FE5F6A93E6AF6A173F8',-363217815);
INSERT INTO "event_ids" VALUES(X'BB162FE5F959CB49F79B70F7',-1722704986);
INSERT INTO "event_ids" VALUES(X'C005B0B904EF3B666663D24B',1590297859);
INSERT INTO "event_ids" VALUES(X'C005B0B90F11A6DE0E33976A',-862228750);
INSERT INTO "event_ids" VALUES(X'C005B0B96347D13284E1AE20',1428073421);
INSERT INTO "event_ids" VALUES(X'C005B0B966D9390BF814B8F4',-45768372);
INSERT INTO "event_ids" VALUES(X'C005B0B983D553FB1C68A1E0',-1363637353);
INSERT INTO "event_ids" VALUES(X'C005B0B9930587E8E25968BA',1534947656);
INSERT INTO "event_ids" VALUES(X'C005B0B9C199FAC0BA193D30',21000820);
INSERT INTO "event_ids" VALUES(X'C005B0B9C1B697EC7C358A9A',-793091573);
INSERT INTO "event_ids" VALUES(X'C005B0B9DD297BB507A1C79F',-1457817355);
INSERT INTO "event_ids" VALUES(X'C005B0B9F8057E32C7BE6F9C',-1091642686);
INSERT INTO "event_ids" VALUES(X'D1E9850143D76C7E74D9FAF5',-80463675);
INSERT INTO "event_ids" VALUES(X'D1E98501537657980774ABC3',1543540685);
INSERT INTO "event_ids" VALUES(X'D1E9850187E65563351BF0AA',-921114724);
INSERT INTO "event_ids" VALUES(X'D1E98501B6D1E7C0BD037A1E',789096450);
INSERT INTO "event_ids" VALUES(X'D1E98501FF6C4B25FA1277FF',-2009325814);
INSERT INTO "event_ids" VALUES(X'E8F4F02C0D3DBE947770AB58',-1560882217);
INSERT INTO "event_ids" VALUES(X'E8F4F02C35B98ABA02B7EADF',840109800);
INSERT INTO "event_ids" VALUES(X'E8F4F02C56913B15961B4B6B',314551362);
INSERT INTO "event_ids" VALUES(X'E8F4F02C6FD67C52C67CB159',-1844699096);
INSERT INTO "event_ids" VALUES(X'E8F4F02C80124480055205B3',1741282039);
INSERT INTO "event_ids" VALUES(X'E8F4F02C8C3AA6CF5839EE00',-2108001923);
INSERT INTO "event_ids" VALUES(X'E8F4F02CAC20B9CBDDBC0FAA',567661874);
INSERT INTO "event_ids" VALUES(X'E8F4F02CCA3EDB10A42E610A',1592983791);
INSERT INTO "event_ids" VALUES(X'E8F4F02CF089C37E317F953B',-1987125325);
INSERT INTO "event_ids" VALUES(X'E8F4F02CF504A0DE1C825C10',1617570197);
INSERT INTO "event_ids" VALUES(X'FF77B5F3551C06B440179E57',862472025);
INSERT INTO "event_ids" VALUES(X'FF77B5F37ECE54CE5AF50FF2',-413870178);
INSERT INTO "event_ids" VALUES(X'FF77B5F396754452FAD865D7',-1805848495);
INSERT INTO "event_ids" VALUES(X'FF77B5F3BFAC014CA8376BA8',1626479837);
INSERT INTO "event_ids" VALUES(X'FF77B5F3C6EA53E1884DEE7E',1080058006);
INSERT INTO "event_ids" VALUES(X'FF77B5F3D399B9C153E9C591',-1261532134);
INSERT INTO "event_ids" VALUES(X'FF77B5F3D5960BBE8AEF2494',-1344641462);
INSERT INTO "event_ids" VALUES(X'FF77B5F3D9BDC03B0DE375E5',335166226);
INSERT INTO "event_ids" VALUES(X'FF77B5F3E46793C6D6D6B476',-169184116);
INSERT INTO "event_ids" VALUES(X'FF77B5F3FE481129AE7E1EF6',-943281195);
CREATE TABLE events (
    sequence INTEGER PRIMARY KEY,
    study INTEGER NOT NULL,
    id TEXT NOT NULL,
    kind INTEGER NOT NULL,
    unit TEXT NOT NULL,
    version INTEGER,
    arm TEXT,
    candidate INTEGER,
    name TEXT,
    fields TEXT,
    excluded INTEGER NOT NULL,
    source TEXT,
    position INTEGER,
    received_at REAL NOT NULL
, row_checksum INTEGER, key_prefix TEXT) STRICT;
INSERT INTO "events" VALUES(1,1,'e1/0',0,'user 0',1,'learner',3,NULL,NULL,0,NULL,NULL,1700000060.0,-104173408,NULL);
INSERT INTO "events" VALUES(2,1,'w1/0',1,'user 0',1,'learner',3,'watch','{"seconds":5.0}',0,NULL,NULL,1700000060.0,1439577638,NULL);
INSERT INTO "events" VALUES(3,1,'e1/1',0,'user 1',1,'learner',1,NULL,NULL,0,NULL,NULL,1700000060.0,1564514133,NULL);
INSERT INTO "events" VALUES(4,1,'w1/1',1,'user 1',1,'learner',1,'watch','{"seconds":4.0}',0,NULL,NULL,1700000060.0,-862358302,NULL);
INSERT INTO "events" VALUES(5,1,'l1/1',1,'user 1',1,'learner',1,'like',NULL,0,NULL,NULL,1700000060.0,52926921,NULL);
INSERT INTO "events" VALUES(6,1,'e1/2',0,'user 2',1,'outside',1,NULL,NULL,0,NULL,NULL,1700000060.0,-1812169496,NULL);
INSERT INTO "events" VALUES(7,1,'w1/2',1,'user 2',1,'outside',1,'watch','{"seconds":5.0}',0,NULL,NULL,1700000060.0,-457844616,NULL);
INSERT INTO "events" VALUES(8,1,'e1/3',0,'user 3',1,'learner',1,NULL,NULL,0,NULL,NULL,1700000060.0,-1899536910,NULL);
INSERT INTO "events" VALUES(9,1,'w1/3',1,'user 3',1,'learner',1,'watch','{"seconds":6.0}',0,NULL,NULL,1700000060.0,406164123,NULL);
INSERT INTO "events" VALUES(10,1,'l1/3',1,'user 3',1,'learner',1,'like',NULL,0,NULL,NULL,1700000060.0,-9345587,NULL);
INSERT INTO "events" VALUES(11,1,'e1/4',0,'user 4',1,'control',1,NULL,NULL,0,NULL,NULL,1700000060.0,1482295927,NULL);
INSERT INTO "events" VALUES(12,1,'w1/4',1,'user 4',1,'control',1,'watch','{"seconds":7.0}',0,NULL,NULL,1700000060.0,1538477702,NULL);
INSERT INTO "events" VALUES(13,1,'e1/5',0,'user 5',1,'learner',2,NULL,NULL,0,NULL,NULL,1700000060.0,-543772899,NULL);
INSERT INTO "events" VALUES(14,1,'w1/5',1,'user 5',1,'learner',2,'watch','{"seconds":9.0}',0,NULL,NULL,1700000060.0,863021249,NULL);
INSERT INTO "events" VALUES(15,1,'l1/5',1,'user 5',1,'learner',2,'like',NULL,0,NULL,NULL,1700000060.0,2028052074,NULL);
INSERT INTO "events" VALUES(16,1,'e1/6',0,'user 6',1,'learner',1,NULL,NULL,0,NULL,NULL,1700000060.0,-1302217154,NULL);
INSERT INTO "events" VALUES(17,1,'w1/6',1,'user 6',1,'learner',1,'watch','{"seconds":9.0}',0,NULL,NULL,1700000060.0,1613945476,NULL);
INSERT INTO "events" VALUES(18,1,'e1/7',0,'user 7',1,'outside',1,NULL,NULL,0,NULL,NULL,1700000060.0,-803162798,NULL);
INSERT INTO "events" VALUES(19,1,'w1/7',1,'user 7',1,'outside',1,'watch','{"seconds":3.0}',0,NULL,NULL,1700000060.0,1619120728,NULL);
INSERT INTO "events" VALUES(20,1,'l1/7',1,'user 7',1,'outside',1,'like',NULL,0,NULL,NULL,1700000060.0,1405986756,NULL);
INSERT INTO "events" VALUES(21,1,'e1/8',0,'user 8',1,'outside',1,NULL,NULL,0,NULL,NULL,1700000060.0,1337577500,NULL);
INSERT INTO "events" VALUES(22,1,'w1/8',1,'user 8',1,'outside',1,'watch','{"seconds":4.0}',0,NULL,NULL,1700000060.0,175475570,NULL);
INSERT INTO "events" VALUES(23,1,'e1/9',0,'user 9',1,'learner',1,NULL,NULL,0,NULL,NULL,1700000060.0,771283824,NULL);
INSERT INTO "events" VALUES(24,1,'w1/9',1,'user 9',1,'learner',1,'watch','{"seconds":5.0}',0,NULL,NULL,1700000060.0,-1956352509,NULL);
INSERT INTO "events" VALUES(25,1,'l1/9',1,'user 9',1,'learner',1,'like',NULL,0,NULL,NULL,1700000060.0,1285252259,NULL);
INSERT INTO "events" VALUES(26,1,'e1/10',0,'user 10',1,'control',1,NULL,NULL,0,NULL,NULL,1700000060.0,1745252841,NULL);
INSERT INTO "events" VALUES(27,1,'w1/10',1,'user 10',1,'control',1,'watch','{"seconds":6.0}',0,NULL,NULL,1700000060.0,533849735,NULL);
INSERT INTO "events" VALUES(28,1,'e1/11',0,'user 11',1,'outside',1,NULL,NULL,0,NULL,NULL,1700000060.0,1908587753,NULL);
INSERT INTO "events" VALUES(29,1,'w1/11',1,'user 11',1,'outside',1,'watch','{"seconds":7.0}',0,NULL,NULL,1700000060.0,809309491,NULL);
INSERT INTO "events" VALUES(30,1,'l1/11',1,'user 11',1,'outside',1,'like',NULL,0,NULL,NULL,1700000060.0,-446544620,NULL);
INSERT INTO "events" VALUES(31,1,'e1/12',0,'user 12',1,'outside',1,NULL,NULL,0,NULL,NULL,1700000060.0,2127529787,NULL);
INSERT INTO "events" VALUES(32,1,'w1/12',1,'user 12',1,'outside',1,'watch','{"seconds":8.0}',0,NULL,NULL,1700000060.0,775672369,NULL);
INSERT INTO "events" VALUES(33,1,'e1/13',0,'user 13',1,'control',1,NULL,NULL,0,NULL,NULL,1700000060.0,271846579,NULL);
INSERT INTO "events" VALUES(34,1,'w1/13',1,'user 13',1,'control',1,'watch','{"seconds":9.0}',0,NULL,NULL,1700000060.0,-1613831349,NULL);
INSERT INTO "events" VALUES(35,1,'l1/13',1,'user 13',1,'control',1,'like',NULL,0,NULL,NULL,1700000060.0,-52477129,NULL);
INSERT INTO "events" VALUES(36,1,'e1/14',0,'user 14',1,'learner',1,NULL,NULL,0,NULL,NULL,1700000060.0,-1450070000,NULL);
INSERT INTO "events" VALUES(37,1,'w1/14',1,'user 14',1,'learner',1,'watch','{"seconds":3.0}',0,NULL,NULL,1700000060.0,269966914,NULL);
INSERT INTO "events" VALUES(38,1,'e1/15',0,'user 15',1,'learner',1,NULL,NULL,0,NULL,NULL,1700000060.0,-1078108115,NULL);
INSERT INTO "events" VALUES(39,1,'w1/15',1,'user 15',1,'learner',1,'watch','{"seconds":4.0}',0,NULL,NULL,1700000060.0,-1403355790,NULL);
INSERT INTO "events" VALUES(40,1,'l1/15',1,'user 15',1,'learner',1,'like',NULL,0,NULL,NULL,1700000060.0,1098959987,NULL);
INSERT INTO "events" VALUES(41,1,'e1/16',0,'user 16',1,'learner',1,NULL,NULL,0,NULL,NULL,1700000060.0,309211939,NULL);
INSERT INTO "events" VALUES(42,1,'w1/16',1,'user 16',1,'learner',1,'watch','{"seconds":5.0}',0,NULL,NULL,1700000060.0,-141049642,NULL);
INSERT INTO "events" VALUES(43,1,'e1/17',0,'user 17',1,'learner',1,NULL,NULL,0,NULL,NULL,1700000060.0,71492382,NULL);
INSERT INTO "events" VALUES(44,1,'w1/17',1,'user 17',1,'learner',1,'watch','{"seconds":6.0}',0,NULL,NULL,1700000060.0,562824507,NULL);
INSERT INTO "events" VALUES(45,1,'l1/17',1,'user 17',1,'learner',1,'like',NULL,0,NULL,NULL,1700000060.0,172313821,NULL);
INSERT INTO "events" VALUES(46,1,'e1/18',0,'user 18',1,'outside',1,NULL,NULL,0,NULL,NULL,1700000060.0,-695669444,NULL);
INSERT INTO "events" VALUES(47,1,'w1/18',1,'user 18',1,'outside',1,'watch','{"seconds":7.0}',0,NULL,NULL,1700000060.0,811985407,NULL);
INSERT INTO "events" VALUES(48,1,'e1/19',0,'user 19',1,'outside',1,NULL,NULL,0,NULL,NULL,1700000060.0,-1945839411,NULL);
INSERT INTO "events" VALUES(49,1,'w1/19',1,'user 19',1,'outside',1,'watch','{"seconds":8.0}',0,NULL,NULL,1700000060.0,-962804293,NULL);
INSERT INTO "events" VALUES(50,1,'l1/19',1,'user 19',1,'outside',1,'like',NULL,0,NULL,NULL,1700000060.0,-616505112,NULL);
INSERT INTO "events" VALUES(51,2,'e1/0',0,'user 0',1,'learner',0,NULL,NULL,0,NULL,NULL,1700000060.0,1386496281,NULL);
INSERT INTO "events" VALUES(52,2,'w1/0',1,'user 0',1,'learner',0,'watch','{"seconds":3.0}',0,NULL,NULL,1700000060.0,-1479543014,NULL);
INSERT INTO "events" VALUES(53,2,'e1/1',0,'user 1',1,'learner',0,NULL,NULL,0,NULL,NULL,1700000060.0,-1142552601,NULL);
INSERT INTO "events" VALUES(54,2,'w1/1',1,'user 1',1,'learner',0,'watch','{"seconds":4.0}',0,NULL,NULL,1700000060.0,418479364,NULL);
INSERT INTO "events" VALUES(55,2,'l1/1',1,'user 1',1,'learner',0,'like',NULL,0,NULL,NULL,1700000060.0,-193168882,NULL);
INSERT INTO "events" VALUES(56,2,'e1/2',0,'user 2',1,'learner',0,NULL,NULL,0,NULL,NULL,1700000060.0,-1340900933,NULL);
INSERT INTO "events" VALUES(57,2,'w1/2',1,'user 2',1,'learner',0,'watch','{"seconds":5.0}',0,NULL,NULL,1700000060.0,-1483757413,NULL);
INSERT INTO "events" VALUES(58,2,'e1/3',0,'user 3',1,'learner',0,NULL,NULL,0,NULL,NULL,1700000060.0,1498496837,NULL);
INSERT INTO "events" VALUES(59,2,'w1/3',1,'user 3',1,'learner',0,'watch','{"seconds":6.0}',0,NULL,NULL,1700000060.0,-1139953639,NULL);
INSERT INTO "events" VALUES(60,2,'l1/3',1,'user 3',1,'learner',0,'like',NULL,0,NULL,NULL,1700000060.0,-790551161,NULL);
INSERT INTO "events" VALUES(61,2,'e1/4',0,'user 4',1,'learner',0,NULL,NULL,0,NULL,NULL,1700000060.0,-1579594830,NULL);
INSERT INTO "events" VALUES(62,2,'w1/4',1,'user 4',1,'learner',0,'watch','{"seconds":7.0}',0,NULL,NULL,1700000060.0,-628406626,NULL);
INSERT INTO "events" VALUES(63,2,'e1/5',0,'user 5',1,'learner',0,NULL,NULL,0,NULL,NULL,1700000060.0,-1322669505,NULL);
INSERT INTO "events" VALUES(64,2,'w1/5',1,'user 5',1,'learner',0,'watch','{"seconds":8.0}',0,NULL,NULL,1700000060.0,-1488037514,NULL);
INSERT INTO "events" VALUES(65,2,'l1/5',1,'user 5',1,'learner',0,'like',NULL,0,NULL,NULL,1700000060.0,-1119435492,NULL);
INSERT INTO "events" VALUES(66,2,'e1/6',0,'user 6',1,'learner',0,NULL,NULL,0,NULL,NULL,1700000060.0,1710742665,NULL);
INSERT INTO "events" VALUES(67,2,'w1/6',1,'user 6',1,'learner',0,'watch','{"seconds":9.0}',0,NULL,NULL,1700000060.0,-1005914106,NULL);
INSERT INTO "events" VALUES(68,2,'e1/7',0,'user 7',1,'learner',0,NULL,NULL,0,NULL,NULL,1700000060.0,-606340954,NULL);
INSERT INTO "events" VALUES(69,2,'w1/7',1,'user 7',1,'learner',0,'watch','{"seconds":3.0}',0,NULL,NULL,1700000060.0,451089368,NULL);
INSERT INTO "events" VALUES(70,2,'l1/7',1,'user 7',1,'learner',0,'like',NULL,0,NULL,NULL,1700000060.0,-1713661291,NULL);
INSERT INTO "events" VALUES(71,2,'e1/8',0,'user 8',1,'learner',2,NULL,NULL,0,NULL,NULL,1700000060.0,-409876980,NULL);
INSERT INTO "events" VALUES(72,2,'w1/8',1,'user 8',1,'learner',2,'watch','{"seconds":3.305395}',0,NULL,NULL,1700000060.0,-880836707,NULL);
INSERT INTO "events" VALUES(73,2,'e1/9',0,'user 9',1,'learner',0,NULL,NULL,0,NULL,NULL,1700000060.0,1125851641,NULL);
INSERT INTO "events" VALUES(74,2,'w1/9',1,'user 9',1,'learner',0,'watch','{"seconds":5.0}',0,NULL,NULL,1700000060.0,1348476114,NULL);
INSERT INTO "events" VALUES(75,2,'l1/9',1,'user 9',1,'learner',0,'like',NULL,0,NULL,NULL,1700000060.0,1711866922,NULL);
INSERT INTO "events" VALUES(76,3,'e1/0',0,'user 0',1,'control',1,NULL,NULL,0,NULL,NULL,1700000060.0,153137316,NULL);
INSERT INTO "events" VALUES(77,3,'w1/0',1,'user 0',1,'control',1,'watch','{"seconds":3.0}',0,NULL,NULL,1700000060.0,720843512,NULL);
INSERT INTO "events" VALUES(78,3,'e1/1',0,'user 1',1,'learner',0,NULL,NULL,0,NULL,NULL,1700000060.0,-1807034860,NULL);
INSERT INTO "events" VALUES(79,3,'w1/1',1,'user 1',1,'learner',0,'watch','{"seconds":3.0}',0,NULL,NULL,1700000060.0,-162185444,NULL);
INSERT INTO "events" VALUES(80,3,'e1/2',0,'user 2',1,'control',1,NULL,NULL,0,NULL,NULL,1700000060.0,-1375076677,NULL);
INSERT INTO "events" VALUES(81,3,'w1/2',1,'user 2',1,'control',1,'watch','{"seconds":5.0}',0,NULL,NULL,1700000060.0,502465532,NULL);
INSERT INTO "events" VALUES(82,3,'e1/3',0,'user 3',1,'learner',1,NULL,NULL,0,NULL,NULL,1700000060.0,-130069586,NULL);
INSERT INTO "events" VALUES(83,3,'w1/3',1,'user 3',1,'learner',1,'watch','{"seconds":6.0}',0,NULL,NULL,1700000060.0,-1237065972,NULL);
INSERT INTO "events" VALUES(84,3,'e1/4',0,'user 4',1,'learner',0,NULL,NULL,0,NULL,NULL,1700000060.0,1860405136,NULL);
INSERT INTO "events" VALUES(85,3,'w1/4',1,'user 4',1,'learner',0,'watch','{"seconds":6.0}',0,NULL,NULL,1700000060.0,519547835,NULL);
INSERT INTO "events" VALUES(86,3,'e1/5',0,'user 5',1,'learner',1,NULL,NULL,0,NULL,NULL,1700000060.0,1291653835,NULL);
INSERT INTO "events" VALUES(87,3,'w1/5',1,'user 5',1,'learner',1,'watch','{"seconds":8.0}',0,NULL,NULL,1700000060.0,1357478838,NULL);
INSERT INTO "events" VALUES(88,3,'e1/6',0,'user 6',1,'learner',1,NULL,NULL,0,NULL,NULL,1700000060.0,1388219236,NULL);
INSERT INTO "events" VALUES(89,3,'w1/6',1,'user 6',1,'learner',1,'watch','{"seconds":9.0}',0,NULL,NULL,1700000060.0,700914493,NULL);
INSERT INTO "events" VALUES(90,3,'e1/7',0,'user 7',1,'learner',1,NULL,NULL,0,NULL,NULL,1700000060.0,-1141060198,NULL);
INSERT INTO "events" VALUES(91,3,'w1/7',1,'user 7',1,'learner',1,'watch','{"seconds":3.0}',0,NULL,NULL,1700000060.0,-1478670740,NULL);
INSERT INTO "events" VALUES(92,3,'e1/8',0,'user 8',1,'learner',0,NULL,NULL,0,NULL,NULL,1700000060.0,-1942052267,NULL);
INSERT INTO "events" VALUES(93,3,'w1/8',1,'user 8',1,'learner',0,'watch','{"seconds":3.0}',0,NULL,NULL,1700000060.0,-168212828,NULL);
INSERT INTO "events" VALUES(94,3,'e1/9',0,'user 9',1,'control',1,NULL,NULL,0,NULL,NULL,1700000060.0,290768101,NULL);
INSERT INTO "events" VALUES(95,3,'w1/9',1,'user 9',1,'control',1,'watch','{"seconds":5.0}',0,NULL,NULL,1700000060.0,1250655866,NULL);
INSERT INTO "events" VALUES(96,1,'e2/0',0,'user 0',2,'learner',1,NULL,NULL,0,NULL,NULL,1700003720.0,-337055349,NULL);
INSERT INTO "events" VALUES(97,1,'w2/0',1,'user 0',2,'learner',1,'watch','{"seconds":3.0}',0,NULL,NULL,1700003720.0,-929281426,NULL);
INSERT INTO "events" VALUES(98,1,'e2/1',0,'user 1',2,'learner',1,NULL,NULL,0,NULL,NULL,1700003720.0,44742517,NULL);
INSERT INTO "events" VALUES(99,1,'w2/1',1,'user 1',2,'learner',1,'watch','{"seconds":4.0}',0,NULL,NULL,1700003720.0,659650303,NULL);
INSERT INTO "events" VALUES(100,1,'l2/1',1,'user 1',2,'learner',1,'like',NULL,0,NULL,NULL,1700003720.0,-1004722412,NULL);
INSERT INTO "events" VALUES(101,1,'e2/2',0,'user 2',2,'learner',1,NULL,NULL,0,NULL,NULL,1700003720.0,1192563034,NULL);
INSERT INTO "events" VALUES(102,1,'w2/2',1,'user 2',2,'learner',1,'watch','{"seconds":5.0}',0,NULL,NULL,1700003720.0,-785958553,NULL);
INSERT INTO "events" VALUES(103,1,'e2/3',0,'user 3',2,'learner',1,NULL,NULL,0,NULL,NULL,1700003720.0,1474687191,NULL);
INSERT INTO "events" VALUES(104,1,'w2/3',1,'user 3',2,'learner',1,'watch','{"seconds":6.0}',0,NULL,NULL,1700003720.0,1799507195,NULL);
INSERT INTO "events" VALUES(105,1,'l2/3',1,'user 3',2,'learner',1,'like',NULL,0,NULL,NULL,1700003720.0,-511649630,NULL);
INSERT INTO "events" VALUES(106,1,'e2/4',0,'user 4',2,'outside',1,NULL,NULL,0,NULL,NULL,1700003720.0,-1257301717,NULL);
INSERT INTO "events" VALUES(107,1,'w2/4',1,'user 4',2,'outside',1,'watch','{"seconds":7.0}',0,NULL,NULL,1700003720.0,1185724310,NULL);
INSERT INTO "events" VALUES(108,1,'e2/5',0,'user 5',2,'learner',1,NULL,NULL,0,NULL,NULL,1700003720.0,-2145357674,NULL);
INSERT INTO "events" VALUES(109,1,'w2/5',1,'user 5',2,'learner',1,'watch','{"seconds":8.0}',0,NULL,NULL,1700003720.0,338137325,NULL);
INSERT INTO "events" VALUES(110,1,'l2/5',1,'user 5',2,'learner',1,'like',NULL,0,NULL,NULL,1700003720.0,-1926785018,NULL);
INSERT INTO "events" VALUES(111,1,'e2/6',0,'user 6',2,'learner',1,NULL,NULL,0,NULL,NULL,1700003720.0,-309617122,NULL);
INSERT INTO "events" VALUES(112,1,'w2/6',1,'user 6',2,'learner',1,'watch','{"seconds":9.0}',0,NULL,NULL,1700003720.0,-1946494823,NULL);
INSERT INTO "events" VALUES(113,1,'e2/7',0,'user 7',2,'outside',1,NULL,NULL,0,NULL,NULL,1700003720.0,-1882548878,NULL);
INSERT INTO "events" VALUES(114,1,'w2/7',1,'user 7',2,'outside',1,'watch','{"seconds":3.0}',0,NULL,NULL,1700003720.0,-1958096827,NULL);
INSERT INTO "events" VALUES(115,1,'l2/7',1,'user 7',2,'outside',1,'like',NULL,0,NULL,NULL,1700003720.0,-1795745511,NULL);
INSERT INTO "events" VALUES(116,1,'e2/8',0,'user 8',2,'learner',1,NULL,NULL,0,NULL,NULL,1700003720.0,-1689207378,NULL);
INSERT INTO "events" VALUES(117,1,'w2/8',1,'user 8',2,'learner',1,'watch','{"seconds":4.0}',0,NULL,NULL,1700003720.0,1072130669,NULL);
INSERT INTO "events" VALUES(118,1,'e2/9',0,'user 9',2,'learner',1,NULL,NULL,0,NULL,NULL,1700003720.0,1913846608,NULL);
INSERT INTO "events" VALUES(119,1,'w2/9',1,'user 9',2,'learner',1,'watch','{"seconds":5.0}',0,NULL,NULL,1700003720.0,303894232,NULL);
INSERT INTO "events" VALUES(120,1,'l2/9',1,'user 9',2,'learner',1,'like',NULL,0,NULL,NULL,1700003720.0,982374633,NULL);
INSERT INTO "events" VALUES(121,1,'e2/10',0,'user 10',2,'learner',1,NULL,NULL,0,NULL,NULL,1700003720.0,-762480370,NULL);
INSERT INTO "events" VALUES(122,1,'w2/10',1,'user 10',2,'learner',1,'watch','{"seconds":6.0}',0,NULL,NULL,1700003720.0,1362085753,NULL);
INSERT INTO "events" VALUES(123,1,'e2/11',0,'user 11',2,'outside',1,NULL,NULL,0,NULL,NULL,1700003720.0,1950173157,NULL);
INSERT INTO "events" VALUES(124,1,'w2/11',1,'user 11',2,'outside',1,'watch','{"seconds":7.0}',0,NULL,NULL,1700003720.0,-823004993,NULL);
INSERT INTO "events" VALUES(125,1,'l2/11',1,'user 11',2,'outside',1,'like',NULL,0,NULL,NULL,1700003720.0,-177508512,NULL);
INSERT INTO "events" VALUES(126,1,'e2/12',0,'user 12',2,'learner',1,NULL,NULL,0,NULL,NULL,1700003720.0,-265080411,NULL);
INSERT INTO "events" VALUES(127,1,'w2/12',1,'user 12',2,'learner',1,'watch','{"seconds":8.0}',0,NULL,NULL,1700003720.0,-926818682,NULL);
INSERT INTO "events" VALUES(128,1,'e2/13',0,'user 13',2,'outside',1,NULL,NULL,0,NULL,NULL,1700003720.0,-647589391,NULL);
INSERT INTO "events" VALUES(129,1,'w2/13',1,'user 13',2,'outside',1,'watch','{"seconds":9.0}',0,NULL,NULL,1700003720.0,-922342514,NULL);
INSERT INTO "events" VALUES(130,1,'l2/13',1,'user 13',2,'outside',1,'like',NULL,0,NULL,NULL,1700003720.0,1379712480,NULL);
INSERT INTO "events" VALUES(131,1,'e2/14',0,'user 14',2,'control',1,NULL,NULL,0,NULL,NULL,1700003720.0,-339713856,NULL);
INSERT INTO "events" VALUES(132,1,'w2/14',1,'user 14',2,'control',1,'watch','{"seconds":3.0}',0,NULL,NULL,1700003720.0,-1736084091,NULL);
INSERT INTO "events" VALUES(133,1,'e2/15',0,'user 15',2,'learner',1,NULL,NULL,0,NULL,NULL,1700003720.0,1117274902,NULL);
INSERT INTO "events" VALUES(134,1,'w2/15',1,'user 15',2,'learner',1,'watch','{"seconds":4.0}',0,NULL,NULL,1700003720.0,-1795517753,NULL);
INSERT INTO "events" VALUES(135,1,'l2/15',1,'user 15',2,'learner',1,'like',NULL,0,NULL,NULL,1700003720.0,950292839,NULL);
INSERT INTO "events" VALUES(136,1,'e2/16',0,'user 16',2,'control',1,NULL,NULL,0,NULL,NULL,1700003720.0,-1103008029,NULL);
INSERT INTO "events" VALUES(137,1,'w2/16',1,'user 16',2,'control',1,'watch','{"seconds":5.0}',0,NULL,NULL,1700003720.0,1794239210,NULL);
INSERT INTO "events" VALUES(138,1,'e2/17',0,'user 17',2,'learner',1,NULL,NULL,0,NULL,NULL,1700003720.0,387534133,NULL);
INSERT INTO "events" VALUES(139,1,'w2/17',1,'user 17',2,'learner',1,'watch','{"seconds":6.0}',0,NULL,NULL,1700003720.0,215542645,NULL);
INSERT INTO "events" VALUES(140,1,'l2/17',1,'user 17',2,'learner',1,'like',NULL,0,NULL,NULL,1700003720.0,1935790537,NULL);
INSERT INTO "events" VALUES(141,1,'e2/18',0,'user 18',2,'learner',1,NULL,NULL,0,NULL,NULL,1700003720.0,1322258053,NULL);
INSERT INTO "events" VALUES(142,1,'w2/18',1,'user 18',2,'learner',1,'watch','{"seconds":7.0}',0,NULL,NULL,1700003720.0,-1016339277,NULL);
INSERT INTO "events" VALUES(143,1,'e2/19',0,'user 19',2,'learner',1,NULL,NULL,0,NULL,NULL,1700003720.0,-98388380,NULL);
INSERT INTO "events" VALUES(144,1,'w2/19',1,'user 19',2,'learner',1,'watch','{"seconds":8.0}',0,NULL,NULL,1700003720.0,543607052,NULL);
INSERT INTO "events" VALUES(145,1,'l2/19',1,'user 19',2,'learner',1,'like',NULL,0,NULL,NULL,1700003720.0,-741210272,NULL);
INSERT INTO "events" VALUES(146,2,'e2/0',0,'user 0',2,'learner',0,NULL,NULL,0,NULL,NULL,1700003720.0,134017753,NULL);
INSERT INTO "events" VALUES(147,2,'w2/0',1,'user 0',2,'learner',0,'watch','{"seconds":3.0}',0,NULL,NULL,1700003720.0,-931031370,NULL);
INSERT INTO "events" VALUES(148,2,'e2/1',0,'user 1',2,'learner',0,NULL,NULL,0,NULL,NULL,1700003720.0,-1177495818,NULL);
INSERT INTO "events" VALUES(149,2,'w2/1',1,'user 1',2,'learner',0,'watch','{"seconds":4.0}',0,NULL,NULL,1700003720.0,659335719,NULL);
INSERT INTO "events" VALUES(150,2,'l2/1',1,'user 1',2,'learner',0,'like',NULL,0,NULL,NULL,1700003720.0,541927266,NULL);
INSERT INTO "events" VALUES(151,2,'e2/2',0,'user 2',2,'learner',0,NULL,NULL,0,NULL,NULL,1700003720.0,1829675072,NULL);
INSERT INTO "events" VALUES(152,2,'w2/2',1,'user 2',2,'learner',0,'watch','{"seconds":5.0}',0,NULL,NULL,1700003720.0,-437295543,NULL);
INSERT INTO "events" VALUES(153,2,'e2/3',0,'user 3',2,'learner',0,NULL,NULL,0,NULL,NULL,1700003720.0,2113814989,NULL);
INSERT INTO "events" VALUES(154,2,'w2/3',1,'user 3',2,'learner',0,'watch','{"seconds":6.0}',0,NULL,NULL,1700003720.0,-1365325756,NULL);
INSERT INTO "events" VALUES(155,2,'l2/3',1,'user 3',2,'learner',0,'like',NULL,0,NULL,NULL,1700003720.0,1748367666,NULL);
INSERT INTO "events" VALUES(156,2,'e2/4',0,'user 4',2,'learner',0,NULL,NULL,0,NULL,NULL,1700003720.0,-2055850694,NULL);
INSERT INTO "events" VALUES(157,2,'w2/4',1,'user 4',2,'learner',0,'watch','{"seconds":7.0}',0,NULL,NULL,1700003720.0,-1729394612,NULL);
INSERT INTO "events" VALUES(158,2,'e2/5',0,'user 5',2,'learner',0,NULL,NULL,0,NULL,NULL,1700003720.0,1815376836,NULL);
INSERT INTO "events" VALUES(159,2,'w2/5',1,'user 5',2,'learner',0,'watch','{"seconds":8.0}',0,NULL,NULL,1700003720.0,339364917,NULL);
INSERT INTO "events" VALUES(160,2,'l2/5',1,'user 5',2,'learner',0,'like',NULL,0,NULL,NULL,1700003720.0,1869895922,NULL);
INSERT INTO "events" VALUES(161,2,'e2/6',0,'user 6',2,'learner',7,NULL,NULL,0,NULL,NULL,1700003720.0,208995319,NULL);
INSERT INTO "events" VALUES(162,2,'w2/6',1,'user 6',2,'learner',7,'watch','{"seconds":8.223614}',0,NULL,NULL,1700003720.0,-662132271,NULL);
INSERT INTO "events" VALUES(163,2,'e2/7',0,'user 7',2,'learner',0,NULL,NULL,0,NULL,NULL,1700003720.0,-130910799,NULL);
INSERT INTO "events" VALUES(164,2,'w2/7',1,'user 7',2,'learner',0,'watch','{"seconds":3.0}',0,NULL,NULL,1700003720.0,707968972,NULL);
INSERT INTO "events" VALUES(165,2,'l2/7',1,'user 7',2,'learner',0,'like',NULL,0,NULL,NULL,1700003720.0,1273563003,NULL);
INSERT INTO "events" VALUES(166,2,'e2/8',0,'user 8',2,'learner',0,NULL,NULL,0,NULL,NULL,1700003720.0,-1583045961,NULL);
INSERT INTO "events" VALUES(167,2,'w2/8',1,'user 8',2,'learner',0,'watch','{"seconds":4.0}',0,NULL,NULL,1700003720.0,-705427442,NULL);
INSERT INTO "events" VALUES(168,2,'e2/9',0,'user 9',2,'learner',0,NULL,NULL,0,NULL,NULL,1700003720.0,-1319877830,NULL);
INSERT INTO "events" VALUES(169,2,'w2/9',1,'user 9',2,'learner',0,'watch','{"seconds":5.0}',0,NULL,NULL,1700003720.0,-133272389,NULL);
INSERT INTO "events" VALUES(170,2,'l2/9',1,'user 9',2,'learner',0,'like',NULL,0,NULL,NULL,1700003720.0,-1237657158,NULL);
INSERT INTO "events" VALUES(171,3,'e2/0',0,'user 0',2,'learner',1,NULL,NULL,0,NULL,NULL,1700003720.0,-319884136,NULL);
INSERT INTO "events" VALUES(172,3,'w2/0',1,'user 0',2,'learner',1,'watch','{"seconds":3.0}',0,NULL,NULL,1700003720.0,-949725318,NULL);
INSERT INTO "events" VALUES(173,3,'e2/1',0,'user 1',2,'learner',0,NULL,NULL,0,NULL,NULL,1700003720.0,-1717697774,NULL);
INSERT INTO "events" VALUES(174,3,'w2/1',1,'user 1',2,'learner',0,'watch','{"seconds":3.0}',0,NULL,NULL,1700003720.0,1524647293,NULL);
INSERT INTO "events" VALUES(175,3,'e2/2',0,'user 2',2,'learner',0,NULL,NULL,0,NULL,NULL,1700003720.0,776449152,NULL);
INSERT INTO "events" VALUES(176,3,'w2/2',1,'user 2',2,'learner',0,'watch','{"seconds":4.0}',0,NULL,NULL,1700003720.0,699733792,NULL);
INSERT INTO "events" VALUES(177,3,'e2/3',0,'user 3',2,'learner',1,NULL,NULL,0,NULL,NULL,1700003720.0,1931678637,NULL);
INSERT INTO "events" VALUES(178,3,'w2/3',1,'user 3',2,'learner',1,'watch','{"seconds":6.0}',0,NULL,NULL,1700003720.0,598610958,NULL);
INSERT INTO "events" VALUES(179,3,'e2/4',0,'user 4',2,'learner',1,NULL,NULL,0,NULL,NULL,1700003720.0,2043506407,NULL);
INSERT INTO "events" VALUES(180,3,'w2/4',1,'user 4',2,'learner',1,'watch','{"seconds":7.0}',0,NULL,NULL,1700003720.0,-1702659307,NULL);
INSERT INTO "events" VALUES(181,3,'e2/5',0,'user 5',2,'control',1,NULL,NULL,0,NULL,NULL,1700003720.0,2023078179,NULL);
INSERT INTO "events" VALUES(182,3,'w2/5',1,'user 5',2,'control',1,'watch','{"seconds":8.0}',0,NULL,NULL,1700003720.0,-1503626466,NULL);
INSERT INTO "events" VALUES(183,3,'e2/6',0,'user 6',2,'learner',0,NULL,NULL,0,NULL,NULL,1700003720.0,-1151060225,NULL);
INSERT INTO "events" VALUES(184,3,'w2/6',1,'user 6',2,'learner',0,'watch','{"seconds":8.0}',0,NULL,NULL,1700003720.0,-553473707,NULL);
INSERT INTO "events" VALUES(185,3,'e2/7',0,'user 7',2,'learner',0,NULL,NULL,0,NULL,NULL,1700003720.0,-1416308878,NULL);
INSERT INTO "events" VALUES(186,3,'w2/7',1,'user 7',2,'learner',0,'watch','{"seconds":2.0}',0,NULL,NULL,1700003720.0,32195211,NULL);
INSERT INTO "events" VALUES(187,3,'e2/8',0,'user 8',2,'learner',0,NULL,NULL,0,NULL,NULL,1700003720.0,6556105,NULL);
INSERT INTO "events" VALUES(188,3,'w2/8',1,'user 8',2,'learner',0,'watch','{"seconds":3.0}',0,NULL,NULL,1700003720.0,1112955375,NULL);
INSERT INTO "events" VALUES(189,3,'e2/9',0,'user 9',2,'control',1,NULL,NULL,0,NULL,NULL,1700003720.0,-899674712,NULL);
INSERT INTO "events" VALUES(190,3,'w2/9',1,'user 9',2,'control',1,'watch','{"seconds":5.0}',0,NULL,NULL,1700003720.0,204520096,NULL);
INSERT INTO "events" VALUES(191,1,'e3/0',0,'user 0',3,'learner',1,NULL,NULL,0,NULL,NULL,1700007380.0,-114323407,NULL);
INSERT INTO "events" VALUES(192,1,'w3/0',1,'user 0',3,'learner',1,'watch','{"seconds":3.0}',0,NULL,NULL,1700007380.0,1095272046,NULL);
INSERT INTO "events" VALUES(193,1,'e3/1',0,'user 1',3,'learner',1,NULL,NULL,0,NULL,NULL,1700007380.0,-371232324,NULL);
INSERT INTO "events" VALUES(194,1,'w3/1',1,'user 1',3,'learner',1,'watch','{"seconds":4.0}',0,NULL,NULL,1700007380.0,258136033,NULL);
INSERT INTO "events" VALUES(195,1,'l3/1',1,'user 1',3,'learner',1,'like',NULL,0,NULL,NULL,1700007380.0,-467625499,NULL);
INSERT INTO "events" VALUES(196,1,'e3/2',0,'user 2',3,'learner',1,NULL,NULL,0,NULL,NULL,1700007380.0,1023477514,NULL);
INSERT INTO "events" VALUES(197,1,'w3/2',1,'user 2',3,'learner',1,'watch','{"seconds":5.0}',0,NULL,NULL,1700007380.0,1814460049,NULL);
INSERT INTO "events" VALUES(198,1,'e3/3',0,'user 3',3,'control',1,NULL,NULL,0,NULL,NULL,1700007380.0,1012519118,NULL);
INSERT INTO "events" VALUES(199,1,'w3/3',1,'user 3',3,'control',1,'watch','{"seconds":6.0}',0,NULL,NULL,1700007380.0,-1754981138,NULL);
INSERT INTO "events" VALUES(200,1,'l3/3',1,'user 3',3,'control',1,'like',NULL,0,NULL,NULL,1700007380.0,1724702515,NULL);
INSERT INTO "events" VALUES(201,1,'e3/4',0,'user 4',3,'learner',1,NULL,NULL,0,NULL,NULL,1700007380.0,-2058288322,NULL);
INSERT INTO "events" VALUES(202,1,'w3/4',1,'user 4',3,'learner',1,'watch','{"seconds":7.0}',0,NULL,NULL,1700007380.0,-1032546484,NULL);
INSERT INTO "events" VALUES(203,1,'e3/5',0,'user 5',3,'control',1,NULL,NULL,0,NULL,NULL,1700007380.0,-748177877,NULL);
INSERT INTO "events" VALUES(204,1,'w3/5',1,'user 5',3,'control',1,'watch','{"seconds":8.0}',0,NULL,NULL,1700007380.0,-23619769,NULL);
INSERT INTO "events" VALUES(205,1,'l3/5',1,'user 5',3,'control',1,'like',NULL,0,NULL,NULL,1700007380.0,1636663027,NULL);
INSERT INTO "events" VALUES(206,1,'e3/6',0,'user 6',3,'control',1,NULL,NULL,0,NULL,NULL,1700007380.0,1356309068,NULL);
INSERT INTO "events" VALUES(207,1,'w3/6',1,'user 6',3,'control',1,'watch','{"seconds":9.0}',0,NULL,NULL,1700007380.0,-1647102409,NULL);
INSERT INTO "events" VALUES(208,1,'e3/7',0,'user 7',3,'learner',1,NULL,NULL,0,NULL,NULL,1700007380.0,115414873,NULL);
INSERT INTO "events" VALUES(209,1,'w3/7',1,'user 7',3,'learner',1,'watch','{"seconds":3.0}',0,NULL,NULL,1700007380.0,35439114,NULL);
INSERT INTO "events" VALUES(210,1,'l3/7',1,'user 7',3,'learner',1,'like',NULL,0,NULL,NULL,1700007380.0,-1887127044,NULL);
INSERT INTO "events" VALUES(211,1,'e3/8',0,'user 8',3,'outside',1,NULL,NULL,0,NULL,NULL,1700007380.0,2057848943,NULL);
INSERT INTO "events" VALUES(212,1,'w3/8',1,'user 8',3,'outside',1,'watch','{"seconds":4.0}',0,NULL,NULL,1700007380.0,595629770,NULL);
INSERT INTO "events" VALUES(213,1,'e3/9',0,'user 9',3,'outside',1,NULL,NULL,0,NULL,NULL,1700007380.0,-997954496,NULL);
INSERT INTO "events" VALUES(214,1,'w3/9',1,'user 9',3,'outside',1,'watch','{"seconds":5.0}',0,NULL,NULL,1700007380.0,-1348624543,NULL);
INSERT INTO "events" VALUES(215,1,'l3/9',1,'user 9',3,'outside',1,'like',NULL,0,NULL,NULL,1700007380.0,553572403,NULL);
INSERT INTO "events" VALUES(216,1,'e3/10',0,'user 10',3,'learner',1,NULL,NULL,0,NULL,NULL,1700007380.0,-770924195,NULL);
INSERT INTO "events" VALUES(217,1,'w3/10',1,'user 10',3,'learner',1,'watch','{"seconds":6.0}',0,NULL,NULL,1700007380.0,-2066193768,NULL);
INSERT INTO "events" VALUES(218,1,'e3/11',0,'user 11',3,'control',1,NULL,NULL,0,NULL,NULL,1700007380.0,-645207465,NULL);
INSERT INTO "events" VALUES(219,1,'w3/11',1,'user 11',3,'control',1,'watch','{"seconds":7.0}',0,NULL,NULL,1700007380.0,-344477472,NULL);
INSERT INTO "events" VALUES(220,1,'l3/11',1,'user 11',3,'control',1,'like',NULL,0,NULL,NULL,1700007380.0,-1873559448,NULL);
INSERT INTO "events" VALUES(221,1,'e3/12',0,'user 12',3,'control',1,NULL,NULL,0,NULL,NULL,1700007380.0,-254303389,NULL);
INSERT INTO "events" VALUES(222,1,'w3/12',1,'user 12',3,'control',1,'watch','{"seconds":8.0}',0,NULL,NULL,1700007380.0,1564415320,NULL);
INSERT INTO "events" VALUES(223,1,'e3/13',0,'user 13',3,'outside',1,NULL,NULL,0,NULL,NULL,1700007380.0,-762524377,NULL);
INSERT INTO "events" VALUES(224,1,'w3/13',1,'user 13',3,'outside',1,'watch','{"seconds":9.0}',0,NULL,NULL,1700007380.0,-322296798,NULL);
INSERT INTO "events" VALUES(225,1,'l3/13',1,'user 13',3,'outside',1,'like',NULL,0,NULL,NULL,1700007380.0,1161411640,NULL);
INSERT INTO "events" VALUES(226,1,'e3/14',0,'user 14',3,'learner',1,NULL,NULL,0,NULL,NULL,1700007380.0,900618455,NULL);
INSERT INTO "events" VALUES(227,1,'w3/14',1,'user 14',3,'learner',1,'watch','{"seconds":3.0}',0,NULL,NULL,1700007380.0,-1523196703,NULL);
INSERT INTO "events" VALUES(228,1,'e3/15',0,'user 15',3,'outside',1,NULL,NULL,0,NULL,NULL,1700007380.0,-1467890312,NULL);
INSERT INTO "events" VALUES(229,1,'w3/15',1,'user 15',3,'outside',1,'watch','{"seconds":4.0}',0,NULL,NULL,1700007380.0,1497095709,NULL);
INSERT INTO "events" VALUES(230,1,'l3/15',1,'user 15',3,'outside',1,'like',NULL,0,NULL,NULL,1700007380.0,394245406,NULL);
INSERT INTO "events" VALUES(231,1,'e3/16',0,'user 16',3,'control',1,NULL,NULL,0,NULL,NULL,1700007380.0,-1247071691,NULL);
INSERT INTO "events" VALUES(232,1,'w3/16',1,'user 16',3,'control',1,'watch','{"seconds":5.0}',0,NULL,NULL,1700007380.0,1329456454,NULL);
INSERT INTO "events" VALUES(233,1,'e3/17',0,'user 17',3,'learner',1,NULL,NULL,0,NULL,NULL,1700007380.0,-1229365860,NULL);
INSERT INTO "events" VALUES(234,1,'w3/17',1,'user 17',3,'learner',1,'watch','{"seconds":6.0}',0,NULL,NULL,1700007380.0,-1483054363,NULL);
INSERT INTO "events" VALUES(235,1,'l3/17',1,'user 17',3,'learner',1,'like',NULL,0,NULL,NULL,1700007380.0,-664250365,NULL);
INSERT INTO "events" VALUES(236,1,'e3/18',0,'user 18',3,'learner',0,NULL,NULL,0,NULL,NULL,1700007380.0,41729903,NULL);
INSERT INTO "events" VALUES(237,1,'w3/18',1,'user 18',3,'learner',0,'watch','{"seconds":6.0}',0,NULL,NULL,1700007380.0,-128523351,NULL);
INSERT INTO "events" VALUES(238,1,'e3/19',0,'user 19',3,'outside',1,NULL,NULL,0,NULL,NULL,1700007380.0,1871729185,NULL);
INSERT INTO "events" VALUES(239,1,'w3/19',1,'user 19',3,'outside',1,'watch','{"seconds":8.0}',0,NULL,NULL,1700007380.0,-389758753,NULL);
INSERT INTO "events" VALUES(240,1,'l3/19',1,'user 19',3,'outside',1,'like',NULL,0,NULL,NULL,1700007380.0,-2023392030,NULL);
INSERT INTO "events" VALUES(241,2,'e3/0',0,'user 0',3,'learner',6,NULL,NULL,0,NULL,NULL,1700007380.0,410504511,NULL);
INSERT INTO "events" VALUES(242,2,'w3/0',1,'user 0',3,'learner',6,'watch','{"seconds":2.915043}',0,NULL,NULL,1700007380.0,-1801302384,NULL);
INSERT INTO "events" VALUES(243,2,'e3/1',0,'user 1',3,'learner',0,NULL,NULL,0,NULL,NULL,1700007380.0,-555823185,NULL);
INSERT INTO "events" VALUES(244,2,'w3/1',1,'user 1',3,'learner',0,'watch','{"seconds":4.0}',0,NULL,NULL,1700007380.0,1213500316,NULL);
INSERT INTO "events" VALUES(245,2,'l3/1',1,'user 1',3,'learner',0,'like',NULL,0,NULL,NULL,1700007380.0,-924178752,NULL);
INSERT INTO "events" VALUES(246,2,'e3/2',0,'user 2',3,'learner',0,NULL,NULL,0,NULL,NULL,1700007380.0,-1688114816,NULL);
INSERT INTO "events" VALUES(247,2,'w3/2',1,'user 2',3,'learner',0,'watch','{"seconds":5.0}',0,NULL,NULL,1700007380.0,-288263541,NULL);
INSERT INTO "events" VALUES(248,2,'e3/3',0,'user 3',3,'learner',0,NULL,NULL,0,NULL,NULL,1700007380.0,1914908542,NULL);
INSERT INTO "events" VALUES(249,2,'w3/3',1,'user 3',3,'learner',0,'watch','{"seconds":6.0}',0,NULL,NULL,1700007380.0,-1516184442,NULL);
INSERT INTO "events" VALUES(250,2,'l3/3',1,'user 3',3,'learner',0,'like',NULL,0,NULL,NULL,1700007380.0,-277440248,NULL);
INSERT INTO "events" VALUES(251,2,'e3/4',0,'user 4',3,'learner',0,NULL,NULL,0,NULL,NULL,1700007380.0,1689297254,NULL);
INSERT INTO "events" VALUES(252,2,'w3/4',1,'user 4',3,'learner',0,'watch','{"seconds":7.0}',0,NULL,NULL,1700007380.0,1867281802,NULL);
INSERT INTO "events" VALUES(253,2,'e3/5',0,'user 5',3,'learner',0,NULL,NULL,0,NULL,NULL,1700007380.0,-1913460840,NULL);
INSERT INTO "events" VALUES(254,2,'w3/5',1,'user 5',3,'learner',0,'watch','{"seconds":8.0}',0,NULL,NULL,1700007380.0,-1284634756,NULL);
INSERT INTO "events" VALUES(255,2,'l3/5',1,'user 5',3,'learner',0,'like',NULL,0,NULL,NULL,1700007380.0,-2083399252,NULL);
INSERT INTO "events" VALUES(256,2,'e3/6',0,'user 6',3,'learner',0,NULL,NULL,0,NULL,NULL,1700007380.0,-934461001,NULL);
INSERT INTO "events" VALUES(257,2,'w3/6',1,'user 6',3,'learner',0,'watch','{"seconds":9.0}',0,NULL,NULL,1700007380.0,1159219428,NULL);
INSERT INTO "events" VALUES(258,2,'e3/7',0,'user 7',3,'learner',0,NULL,NULL,0,NULL,NULL,1700007380.0,-658661318,NULL);
INSERT INTO "events" VALUES(259,2,'w3/7',1,'user 7',3,'learner',0,'watch','{"seconds":3.0}',0,NULL,NULL,1700007380.0,1793423531,NULL);
INSERT INTO "events" VALUES(260,2,'l3/7',1,'user 7',3,'learner',0,'like',NULL,0,NULL,NULL,1700007380.0,-1504958950,NULL);
INSERT INTO "events" VALUES(261,2,'e3/8',0,'user 8',3,'control',0,NULL,NULL,0,NULL,NULL,1700007380.0,-1354869682,NULL);
INSERT INTO "events" VALUES(262,2,'w3/8',1,'user 8',3,'control',0,'watch','{"seconds":4.0}',0,NULL,NULL,1700007380.0,-1339824653,NULL);
INSERT INTO "events" VALUES(263,2,'e3/9',0,'user 9',3,'control',0,NULL,NULL,0,NULL,NULL,1700007380.0,286421089,NULL);
INSERT INTO "events" VALUES(264,2,'w3/9',1,'user 9',3,'control',0,'watch','{"seconds":5.0}',0,NULL,NULL,1700007380.0,1825397463,NULL);
INSERT INTO "events" VALUES(265,2,'l3/9',1,'user 9',3,'control',0,'like',NULL,0,NULL,NULL,1700007380.0,-51494469,NULL);
INSERT INTO "events" VALUES(266,3,'e3/0',0,'user 0',3,'learner',0,NULL,NULL,0,NULL,NULL,1700007380.0,1183273897,NULL);
INSERT INTO "events" VALUES(267,3,'w3/0',1,'user 0',3,'learner',0,'watch','{"seconds":2.0}',0,NULL,NULL,1700007380.0,605856183,NULL);
INSERT INTO "events" VALUES(268,3,'e3/1',0,'user 1',3,'learner',0,NULL,NULL,0,NULL,NULL,1700007380.0,-1346038441,NULL);
INSERT INTO "events" VALUES(269,3,'w3/1',1,'user 1',3,'learner',0,'watch','{"seconds":3.0}',0,NULL,NULL,1700007380.0,-118350189,NULL);
INSERT INTO "events" VALUES(270,3,'e3/2',0,'user 2',3,'learner',0,NULL,NULL,0,NULL,NULL,1700007380.0,1332926484,NULL);
INSERT INTO "events" VALUES(271,3,'w3/2',1,'user 2',3,'learner',0,'watch','{"seconds":4.0}',0,NULL,NULL,1700007380.0,-1291846227,NULL);
INSERT INTO "events" VALUES(272,3,'e3/3',0,'user 3',3,'learner',1,NULL,NULL,0,NULL,NULL,1700007380.0,1835814223,NULL);
INSERT INTO "events" VALUES(273,3,'w3/3',1,'user 3',3,'learner',1,'watch','{"seconds":6.0}',0,NULL,NULL,1700007380.0,-1192952189,NULL);
INSERT INTO "events" VALUES(274,3,'e3/4',0,'user 4',3,'learner',1,NULL,NULL,0,NULL,NULL,1700007380.0,-1640982666,NULL);
INSERT INTO "events" VALUES(275,3,'w3/4',1,'user 4',3,'learner',1,'watch','{"seconds":7.0}',0,NULL,NULL,1700007380.0,-1607533434,NULL);
INSERT INTO "events" VALUES(276,3,'e3/5',0,'user 5',3,'control',1,NULL,NULL,0,NULL,NULL,1700007380.0,-939122077,NULL);
INSERT INTO "events" VALUES(277,3,'w3/5',1,'user 5',3,'control',1,'watch','{"seconds":8.0}',0,NULL,NULL,1700007380.0,-1664222067,NULL);
INSERT INTO "events" VALUES(278,3,'e3/6',0,'user 6',3,'learner',0,NULL,NULL,0,NULL,NULL,1700007380.0,1553583982,NULL);
INSERT INTO "events" VALUES(279,3,'w3/6',1,'user 6',3,'learner',0,'watch','{"seconds":8.0}',0,NULL,NULL,1700007380.0,1145586648,NULL);
INSERT INTO "events" VALUES(280,3,'e3/7',0,'user 7',3,'learner',0,NULL,NULL,0,NULL,NULL,1700007380.0,-1243903600,NULL);
INSERT INTO "events" VALUES(281,3,'w3/7',1,'user 7',3,'learner',0,'watch','{"seconds":2.0}',0,NULL,NULL,1700007380.0,-1700681722,NULL);
INSERT INTO "events" VALUES(282,3,'e3/8',0,'user 8',3,'learner',0,NULL,NULL,0,NULL,NULL,1700007380.0,1632730461,NULL);
INSERT INTO "events" VALUES(283,3,'w3/8',1,'user 8',3,'learner',0,'watch','{"seconds":3.0}',0,NULL,NULL,1700007380.0,-532413951,NULL);
INSERT INTO "events" VALUES(284,3,'e3/9',0,'user 9',3,'learner',0,NULL,NULL,0,NULL,NULL,1700007380.0,-2012005469,NULL);
INSERT INTO "events" VALUES(285,3,'w3/9',1,'user 9',3,'learner',0,'watch','{"seconds":4.0}',0,NULL,NULL,1700007380.0,1601865759,NULL);
INSERT INTO "events" VALUES(286,1,'ce7/0',0,'user 0',7,'blend',1,NULL,NULL,0,NULL,NULL,1700010980.0,-57109161,NULL);
INSERT INTO "events" VALUES(287,1,'cw7/0',1,'user 0',7,'blend',1,'watch','{"seconds":3.0}',0,NULL,NULL,1700010980.0,740537400,NULL);
INSERT INTO "events" VALUES(288,1,'ce7/1',0,'user 1',7,'single',2,NULL,NULL,0,NULL,NULL,1700010980.0,-1070634366,NULL);
INSERT INTO "events" VALUES(289,1,'cw7/1',1,'user 1',7,'single',2,'watch','{"seconds":5.0}',0,NULL,NULL,1700010980.0,-1802317318,NULL);
INSERT INTO "events" VALUES(290,1,'cl7/1',1,'user 1',7,'single',2,'like',NULL,0,NULL,NULL,1700010980.0,-237432924,NULL);
INSERT INTO "events" VALUES(291,1,'ce7/2',0,'user 2',7,'control',1,NULL,NULL,0,NULL,NULL,1700010980.0,1466061771,NULL);
INSERT INTO "events" VALUES(292,1,'cw7/2',1,'user 2',7,'control',1,'watch','{"seconds":5.0}',0,NULL,NULL,1700010980.0,850735682,NULL);
INSERT INTO "events" VALUES(293,1,'ce7/3',0,'user 3',7,'control',1,NULL,NULL,0,NULL,NULL,1700010980.0,-244454067,NULL);
INSERT INTO "events" VALUES(294,1,'cw7/3',1,'user 3',7,'control',1,'watch','{"seconds":6.0}',0,NULL,NULL,1700010980.0,306289804,NULL);
INSERT INTO "events" VALUES(295,1,'cl7/3',1,'user 3',7,'control',1,'like',NULL,0,NULL,NULL,1700010980.0,-812810667,NULL);
INSERT INTO "events" VALUES(296,1,'ce7/4',0,'user 4',7,'blend',1,NULL,NULL,0,NULL,NULL,1700010980.0,-1219388514,NULL);
INSERT INTO "events" VALUES(297,1,'cw7/4',1,'user 4',7,'blend',1,'watch','{"seconds":7.0}',0,NULL,NULL,1700010980.0,-1733172090,NULL);
INSERT INTO "events" VALUES(298,1,'ce7/5',0,'user 5',7,'single',2,NULL,NULL,0,NULL,NULL,1700010980.0,-1958285403,NULL);
INSERT INTO "events" VALUES(299,1,'cw7/5',1,'user 5',7,'single',2,'watch','{"seconds":9.0}',0,NULL,NULL,1700010980.0,167862846,NULL);
INSERT INTO "events" VALUES(300,1,'cl7/5',1,'user 5',7,'single',2,'like',NULL,0,NULL,NULL,1700010980.0,-908276821,NULL);
INSERT INTO "events" VALUES(301,1,'ce7/6',0,'user 6',7,'blend',1,NULL,NULL,0,NULL,NULL,1700010980.0,1526598412,NULL);
INSERT INTO "events" VALUES(302,1,'cw7/6',1,'user 6',7,'blend',1,'watch','{"seconds":9.0}',0,NULL,NULL,1700010980.0,-738300538,NULL);
INSERT INTO "events" VALUES(303,1,'ce7/7',0,'user 7',7,'blend',1,NULL,NULL,0,NULL,NULL,1700010980.0,-743279488,NULL);
INSERT INTO "events" VALUES(304,1,'cw7/7',1,'user 7',7,'blend',1,'watch','{"seconds":3.0}',0,NULL,NULL,1700010980.0,-1990836568,NULL);
INSERT INTO "events" VALUES(305,1,'cl7/7',1,'user 7',7,'blend',1,'like',NULL,0,NULL,NULL,1700010980.0,-151786670,NULL);
INSERT INTO "events" VALUES(306,1,'ce7/8',0,'user 8',7,'control',1,NULL,NULL,0,NULL,NULL,1700010980.0,2104653896,NULL);
INSERT INTO "events" VALUES(307,1,'cw7/8',1,'user 8',7,'control',1,'watch','{"seconds":4.0}',0,NULL,NULL,1700010980.0,1037458736,NULL);
INSERT INTO "events" VALUES(308,1,'ce7/9',0,'user 9',7,'blend',1,NULL,NULL,0,NULL,NULL,1700010980.0,-648627199,NULL);
INSERT INTO "events" VALUES(309,1,'cw7/9',1,'user 9',7,'blend',1,'watch','{"seconds":5.0}',0,NULL,NULL,1700010980.0,-953674429,NULL);
INSERT INTO "events" VALUES(310,1,'cl7/9',1,'user 9',7,'blend',1,'like',NULL,0,NULL,NULL,1700010980.0,91821654,NULL);
INSERT INTO "events" VALUES(311,1,'ce7/10',0,'user 10',7,'single',2,NULL,NULL,0,NULL,NULL,1700010980.0,299757362,NULL);
INSERT INTO "events" VALUES(312,1,'cw7/10',1,'user 10',7,'single',2,'watch','{"seconds":7.0}',0,NULL,NULL,1700010980.0,-864065064,NULL);
INSERT INTO "events" VALUES(313,1,'ce7/11',0,'user 11',7,'blend',1,NULL,NULL,0,NULL,NULL,1700010980.0,-74266386,NULL);
INSERT INTO "events" VALUES(314,1,'cw7/11',1,'user 11',7,'blend',1,'watch','{"seconds":7.0}',0,NULL,NULL,1700010980.0,937839254,NULL);
INSERT INTO "events" VALUES(315,1,'cl7/11',1,'user 11',7,'blend',1,'like',NULL,0,NULL,NULL,1700010980.0,1421206799,NULL);
INSERT INTO "events" VALUES(316,1,'ce7/12',0,'user 12',7,'control',1,NULL,NULL,0,NULL,NULL,1700010980.0,1900689458,NULL);
INSERT INTO "events" VALUES(317,1,'cw7/12',1,'user 12',7,'control',1,'watch','{"seconds":8.0}',0,NULL,NULL,1700010980.0,-1935529613,NULL);
INSERT INTO "events" VALUES(318,1,'ce7/13',0,'user 13',7,'control',1,NULL,NULL,0,NULL,NULL,1700010980.0,870723218,NULL);
INSERT INTO "events" VALUES(319,1,'cw7/13',1,'user 13',7,'control',1,'watch','{"seconds":9.0}',0,NULL,NULL,1700010980.0,-810932732,NULL);
INSERT INTO "events" VALUES(320,1,'cl7/13',1,'user 13',7,'control',1,'like',NULL,0,NULL,NULL,1700010980.0,2066500023,NULL);
INSERT INTO "events" VALUES(321,1,'ce7/14',0,'user 14',7,'blend',1,NULL,NULL,0,NULL,NULL,1700010980.0,-597101627,NULL);
INSERT INTO "events" VALUES(322,1,'cw7/14',1,'user 14',7,'blend',1,'watch','{"seconds":3.0}',0,NULL,NULL,1700010980.0,262244915,NULL);
INSERT INTO "events" VALUES(323,1,'ce7/15',0,'user 15',7,'control',1,NULL,NULL,0,NULL,NULL,1700010980.0,1345129745,NULL);
INSERT INTO "events" VALUES(324,1,'cw7/15',1,'user 15',7,'control',1,'watch','{"seconds":4.0}',0,NULL,NULL,1700010980.0,-182408320,NULL);
INSERT INTO "events" VALUES(325,1,'cl7/15',1,'user 15',7,'control',1,'like',NULL,0,NULL,NULL,1700010980.0,2049887787,NULL);
INSERT INTO "events" VALUES(326,1,'ce7/16',0,'user 16',7,'blend',1,NULL,NULL,0,NULL,NULL,1700010980.0,494111657,NULL);
INSERT INTO "events" VALUES(327,1,'cw7/16',1,'user 16',7,'blend',1,'watch','{"seconds":5.0}',0,NULL,NULL,1700010980.0,-2128105018,NULL);
INSERT INTO "events" VALUES(328,1,'ce7/17',0,'user 17',7,'control',1,NULL,NULL,0,NULL,NULL,1700010980.0,-944041553,NULL);
INSERT INTO "events" VALUES(329,1,'cw7/17',1,'user 17',7,'control',1,'watch','{"seconds":6.0}',0,NULL,NULL,1700010980.0,-1698253555,NULL);
INSERT INTO "events" VALUES(330,1,'cl7/17',1,'user 17',7,'control',1,'like',NULL,0,NULL,NULL,1700010980.0,1614418580,NULL);
INSERT INTO "events" VALUES(331,1,'ce7/18',0,'user 18',7,'control',1,NULL,NULL,0,NULL,NULL,1700010980.0,-1698678079,NULL);
INSERT INTO "events" VALUES(332,1,'cw7/18',1,'user 18',7,'control',1,'watch','{"seconds":7.0}',0,NULL,NULL,1700010980.0,1779608616,NULL);
INSERT INTO "events" VALUES(333,1,'ce7/19',0,'user 19',7,'blend',1,NULL,NULL,0,NULL,NULL,1700010980.0,-1341871215,NULL);
INSERT INTO "events" VALUES(334,1,'cw7/19',1,'user 19',7,'blend',1,'watch','{"seconds":8.0}',0,NULL,NULL,1700010980.0,-598640127,NULL);
INSERT INTO "events" VALUES(335,1,'cl7/19',1,'user 19',7,'blend',1,'like',NULL,0,NULL,NULL,1700010980.0,-345139912,NULL);
CREATE TABLE keys (
    prefix TEXT PRIMARY KEY,
    digest TEXT NOT NULL,
    name TEXT NOT NULL,
    scopes TEXT NOT NULL,
    created_at REAL NOT NULL,
    expires_at REAL,
    revoked_at REAL
) STRICT, WITHOUT ROWID;
CREATE TABLE latest (
    study INTEGER NOT NULL,
    unit TEXT NOT NULL,
    version INTEGER NOT NULL,
    arm TEXT,
    candidate INTEGER,
    sequence INTEGER NOT NULL,
    PRIMARY KEY (study, unit)
) STRICT, WITHOUT ROWID;
INSERT INTO "latest" VALUES(1,'user 0',7,'blend',1,286);
INSERT INTO "latest" VALUES(1,'user 1',7,'single',2,288);
INSERT INTO "latest" VALUES(1,'user 10',7,'single',2,311);
INSERT INTO "latest" VALUES(1,'user 11',7,'blend',1,313);
INSERT INTO "latest" VALUES(1,'user 12',7,'control',1,316);
INSERT INTO "latest" VALUES(1,'user 13',7,'control',1,318);
INSERT INTO "latest" VALUES(1,'user 14',7,'blend',1,321);
INSERT INTO "latest" VALUES(1,'user 15',7,'control',1,323);
INSERT INTO "latest" VALUES(1,'user 16',7,'blend',1,326);
INSERT INTO "latest" VALUES(1,'user 17',7,'control',1,328);
INSERT INTO "latest" VALUES(1,'user 18',7,'control',1,331);
INSERT INTO "latest" VALUES(1,'user 19',7,'blend',1,333);
INSERT INTO "latest" VALUES(1,'user 2',7,'control',1,291);
INSERT INTO "latest" VALUES(1,'user 3',7,'control',1,293);
INSERT INTO "latest" VALUES(1,'user 4',7,'blend',1,296);
INSERT INTO "latest" VALUES(1,'user 5',7,'single',2,298);
INSERT INTO "latest" VALUES(1,'user 6',7,'blend',1,301);
INSERT INTO "latest" VALUES(1,'user 7',7,'blend',1,303);
INSERT INTO "latest" VALUES(1,'user 8',7,'control',1,306);
INSERT INTO "latest" VALUES(1,'user 9',7,'blend',1,308);
INSERT INTO "latest" VALUES(2,'user 0',3,'learner',6,241);
INSERT INTO "latest" VALUES(2,'user 1',3,'learner',0,243);
INSERT INTO "latest" VALUES(2,'user 2',3,'learner',0,246);
INSERT INTO "latest" VALUES(2,'user 3',3,'learner',0,248);
INSERT INTO "latest" VALUES(2,'user 4',3,'learner',0,251);
INSERT INTO "latest" VALUES(2,'user 5',3,'learner',0,253);
INSERT INTO "latest" VALUES(2,'user 6',3,'learner',0,256);
INSERT INTO "latest" VALUES(2,'user 7',3,'learner',0,258);
INSERT INTO "latest" VALUES(2,'user 8',3,'control',0,261);
INSERT INTO "latest" VALUES(2,'user 9',3,'control',0,263);
INSERT INTO "latest" VALUES(3,'user 0',3,'learner',0,266);
INSERT INTO "latest" VALUES(3,'user 1',3,'learner',0,268);
INSERT INTO "latest" VALUES(3,'user 2',3,'learner',0,270);
INSERT INTO "latest" VALUES(3,'user 3',3,'learner',1,272);
INSERT INTO "latest" VALUES(3,'user 4',3,'learner',1,274);
INSERT INTO "latest" VALUES(3,'user 5',3,'control',1,276);
INSERT INTO "latest" VALUES(3,'user 6',3,'learner',0,278);
INSERT INTO "latest" VALUES(3,'user 7',3,'learner',0,280);
INSERT INTO "latest" VALUES(3,'user 8',3,'learner',0,282);
INSERT INTO "latest" VALUES(3,'user 9',3,'learner',0,284);
CREATE TABLE learners (
    study INTEGER PRIMARY KEY,
    state TEXT NOT NULL
) STRICT;
INSERT INTO "learners" VALUES(1,'{"format":2,"candidates":{"parameters":["w"],"names":["w=0","w=1","w=2","w=3"],"values":[[0],[1],[2],[3]]},"space":null,"objective":{"weights":{"watch":1.0},"sign":1.0,"guardrails":[{"metric":{"numerator":"like_rate.numerator","denominator":"like_rate.denominator","name":"like_rate"},"at":-20.0,"lower":true,"penalty":5.0,"relative":true}]},"learner":{"name":"thompson","settings":{"draws":32,"floor":0.08,"structure":"auto","contrast":"auto","half_life":null}},"seed":7,"baseline":1,"control":0.2,"limits":{"confidence":0.95,"cap":0.6,"entry":0.3,"budget":{"like_rate":10.0}},"retired":[],"learned_rounds":3,"version":5,"asked":0,"learned":{"rounds":3,"model":{"contrasts":{"percent":[true,true,true],"information":[[0.9333333333333333,-0.9333333333333333,0.0,0.0],[-0.9333333333333333,2.6256410256410283,-0.8461538461538463,-0.8461538461538463],[0.0,-0.8461538461538463,0.9230769230769231,-0.07692307692307693],[0.0,-0.8461538461538463,-0.07692307692307693,0.9230769230769231]],"weighted":[[4.672446774943488,-38.797922974096764,51.18821429873009,-17.062738099576695],[-96.63859811683554,110.79179197884048,84.91916317202977,-99.07235703403471],[0.0,0.0,0.0,0.0]],"units":[1.0,41.0,1.0,1.0],"squared_units":[1.0,41.0,1.0,1.0],"sums":[255.0,20.0,44.0],"scale_sums":[252.79766479446926,20.274242349179417,44.0],"repeats":[1.0,6.0,1.0,1.0],"variance_sums":[[734.476653211152,16416.24371364946,0.0],[36314.19775531687,533457.9434377984,0.0],[911.151079923187,9560.303935055817,0.0],[911.151079923187,9560.303935055817,0.0]],"variance_squares":[[539455.9541122548,269493057.6659354,0.0],[33343874.74309445,7604947915.800795,0.0],[830196.2904451899,91399411.33064374,0.0],[830196.2904451899,91399411.33064374,0.0]],"noise_sums":[[38870.9765683744,-5767.794772231615,0.0],[-5767.794772231615,568994.7950215596,0.0],[0.0,0.0,0.0]],"squares":[14609.674582231757,59318.24389910026,0.0],"expected_squares":[4705.621568558483,64700.18152176252,0.0],"degrees":6.0,"rounds":3.0},"baseline":1,"prior":[[886.6000081791553,512.8627487630099,0.0],[512.8627487630099,11724.50779195572,0.0],[0.0,0.0,0.007633113376229216]],"kernels":null,"mixing":[[19.00540722700843,0.0,-24.49397691350142],[-82.28139553199556,0.0,-65.94202206032517],[0.0,0.1000000499999875,0.0]],"reference":null},"noise":[[2.9161776170645717,-0.03470319503420611,0.0],[-0.03470319503420611,0.2745617065583653,0.0],[0.0,0.0,1.0000010000000002e-06]],"units":9.0,"fitted":2,"before":[[[6.9066134977311755,5.747656087597272,8.028606361273246,5.784679273600417],[0.4449527453623035,0.4855590662729193,0.7004062422059654,0.18949896842521402],[1.0,1.0,1.0,1.0]],[17.398396576960753,0.0,0.0]]},"policies":[[3,[0.059711456298828125,0.7865315437316894,0.12837963104248049,0.025377368927001955]],[4,[0.03917346954345703,0.7861906051635742,0.14234024047851565,0.03229568481445313]],[5,[0.033284454345703124,0.7867329406738282,0.14669815063476566,0.033284454345703124]]],"rounds":[]}');
INSERT INTO "learners" VALUES(2,'{"format":2,"candidates":{"parameters":["w","n"],"names":["w=1,n=2","w=1.300854,n=3","w=0.305395,n=2","w=0.614515,n=2","w=1.619052,n=1","w=1.911783,n=3","w=0.915043,n=1","w=0.223614,n=3","w=1.22687,n=1","w=1.088551,n=2","w=0.08401,n=1","w=0.777331,n=3","w=1.772793,n=2","w=1.046218,n=3","w=1.192307,n=3","w=0.036869,n=1","w=0.900244,n=3","w=2,n=2"],"values":[[1,2],[1.300854,3],[0.305395,2],[0.614515,2],[1.619052,1],[1.911783,3],[0.915043,1],[0.223614,3],[1.22687,1],[1.088551,2],[0.08401,1],[0.777331,3],[1.772793,2],[1.046218,3],[1.192307,3],[0.036869,1],[0.900244,3],[2.0,2]]},"space":{"parameters":[{"name":"w","kind":"real","low":0.0,"high":2.0},{"name":"n","kind":"integer","low":1,"high":3}],"constraints":[]},"objective":{"weights":{"watch":1.0},"sign":1.0,"guardrails":[{"metric":{"numerator":"like_rate.numerator","denominator":"like_rate.denominator","name":"like_rate"},"at":-20.0,"lower":true,"penalty":5.0,"relative":true}]},"learner":{"name":"thompson","settings":{"draws":32,"floor":0.1,"structure":"process","contrast":null,"half_life":null}},"seed":7,"baseline":0,"control":0.1,"limits":{"confidence":0.95,"cap":null,"entry":null,"budget":{"like_rate":10.0}},"retired":[],"learned_rounds":3,"version":3,"asked":0,"learned":{"rounds":3,"model":{"statistics":{"origin":[5.555555555555555,0.5555555555555556,1.0],"units":[27.0,0.0,1.0,0.0,0.0,0.0,1.0,1.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0],"sums":[[-3.9999999999999964,-4.440892098500626e-16,0.0],[0.0,0.0,0.0],[-2.2501605555555555,-0.5555555555555556,0.0],[0.0,0.0,0.0],[0.0,0.0,0.0],[0.0,0.0,0.0],[-2.6405125555555555,-0.5555555555555556,0.0],[2.668058444444444,-0.5555555555555556,0.0],[0.0,0.0,0.0],[0.0,0.0,0.0],[0.0,0.0,0.0],[0.0,0.0,0.0],[0.0,0.0,0.0],[0.0,0.0,0.0],[0.0,0.0,0.0],[0.0,0.0,0.0],[0.0,0.0,0.0],[0.0,0.0,0.0]],"squares":[[25.542953833684813,1.4014525925925925,0.0],[1.4014525925925925,0.933862433862434,0.0],[0.0,0.0,0.0]],"repeats":[4.0,0.0,1.0,0.0,0.0,0.0,1.0,1.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0],"squared_units":[27.0,0.0,1.0,0.0,0.0,0.0,1.0,1.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0],"known_units":[27.0,0.0,1.0,0.0,0.0,0.0,1.0,1.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0],"known_repeats":[4.0,0.0,1.0,0.0,0.0,0.0,1.0,1.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0],"covariance_sums":[[[101.41666666666667,-3.375,0.0],[-3.375,8.0,0.0],[0.0,0.0,0.0]],[[0.0,0.0,0.0],[0.0,0.0,0.0],[0.0,0.0,0.0]],[[4.527777777777778,-0.22222222222222227,0.0],[-0.22222222222222227,0.2777777777777778,0.0],[0.0,0.0,0.0]],[[0.0,0.0,0.0],[0.0,0.0,0.0],[0.0,0.0,0.0]],[[0.0,0.0,0.0],[0.0,0.0,0.0],[0.0,0.0,0.0]],[[0.0,0.0,0.0],[0.0,0.0,0.0],[0.0,0.0,0.0]],[[4.071428571428571,-0.35714285714285715,0.0],[-0.35714285714285715,0.31632653061224486,0.0],[0.0,0.0,0.0]],[[3.0,0.125,0.0],[0.125,0.2777777777777778,0.0],[0.0,0.0,0.0]],[[0.0,0.0,0.0],[0.0,0.0,0.0],[0.0,0.0,0.0]],[[0.0,0.0,0.0],[0.0,0.0,0.0],[0.0,0.0,0.0]],[[0.0,0.0,0.0],[0.0,0.0,0.0],[0.0,0.0,0.0]],[[0.0,0.0,0.0],[0.0,0.0,0.0],[0.0,0.0,0.0]],[[0.0,0.0,0.0],[0.0,0.0,0.0],[0.0,0.0,0.0]],[[0.0,0.0,0.0],[0.0,0.0,0.0],[0.0,0.0,0.0]],[[0.0,0.0,0.0],[0.0,0.0,0.0],[0.0,0.0,0.0]],[[0.0,0.0,0.0],[0.0,0.0,0.0],[0.0,0.0,0.0]],[[0.0,0.0,0.0],[0.0,0.0,0.0],[0.0,0.0,0.0]],[[0.0,0.0,0.0],[0.0,0.0,0.0],[0.0,0.0,0.0]]],"variance_squares":[[418.4513888888889,2.4603174603174605,0.0],[0.0,0.0,0.0],[20.500771604938272,0.0771604938271605,0.0],[0.0,0.0,0.0],[0.0,0.0,0.0],[0.0,0.0,0.0],[16.576530612244895,0.10006247396917949,0.0],[9.0,0.0771604938271605,0.0],[0.0,0.0,0.0],[0.0,0.0,0.0],[0.0,0.0,0.0],[0.0,0.0,0.0],[0.0,0.0,0.0],[0.0,0.0,0.0],[0.0,0.0,0.0],[0.0,0.0,0.0],[0.0,0.0,0.0],[0.0,0.0,0.0]],"expected_scatter":[24.29365079365079,2.2131519274376417,0.0]},"baseline":0,"prior":[[-0.5015065683718116,-0.3018860353570931,0.0],[[2.5364803808152434,-0.032503246944547155,0.0],[-0.032503246944547155,0.17276764223204,0.0],[0.0,0.0,1.5532380843332885e-13]],[[1.1764782646615304,-0.023696526951329764,0.0],[-0.023696526951329767,0.08438407934394679,0.0],[0.0,0.0,7.999059953602318e-14]],[1.0],[1.0],[[[2.7434867493082145,-0.05253994422135106,0.0],[-0.05253994422135106,0.0009168813397732117,0.0],[0.0,0.0,0.0]],[[0.0,0.5163225414179264,0.0],[0.5163225414179264,-0.019560195319838932,0.0],[0.0,0.0,0.0]],[[0.0,0.0,5.023331982037246e-07],[0.0,0.0,-9.390585474041464e-09],[5.023331982037246e-07,-9.390585474041464e-09,0.0]],[[0.0,0.0,0.0],[0.0,0.19430200928197675,0.0],[0.0,0.0,0.0]],[[0.0,0.0,0.0],[0.0,0.0,1.3353242109035896e-07],[0.0,1.3353242109035896e-07,0.0]],[[0.0,0.0,0.0],[0.0,0.0,0.0],[0.0,0.0,1.8336481838833824e-13]]]],"kernels":[{"mean":0.0,"amplitude":0.5385345733966258,"nugget":0.009296205798468925,"scales":[0.7918986915619076,0.7664260114276693]},{"mean":0.5348919006840325,"amplitude":0.23133556640179273,"nugget":0.0027569684609015594,"scales":[0.6003075017826119,0.7145866696442905]},{"mean":-0.09217514708776682,"amplitude":0.714312233737837,"nugget":0.010215398837093308,"scales":[0.8046582442592848,0.5373842711455621]}],"mixing":[[0.0,-0.3798933566225446,-1.9025177240624682],[0.0,-0.5113527385404223,0.12765748055937062],[1.000001e-06,0.0,0.0]],"reference":null},"noise":[[3.767195767195767,-0.12764550264550265,0.0],[-0.12764550264550265,0.29572940287226,0.0],[0.0,0.0,3.0612275510204076e-13]],"units":8.0,"fitted":2,"before":[[[5.272257900181905,6.164192517531937,5.200764606405814,5.21967144171896,5.419474363007954,6.002591708861502,5.303010125993755,6.420396395257924,5.349931717581369,5.293002177590423,5.273041920599696,6.313097623894227,5.4440535094554825,6.239161089666151,6.196211929448851,5.276829444987029],[0.5121087428659425,0.4299461112223475,0.43725102009554384,0.4719502008073404,0.5000688540519462,0.44790254968200943,0.49092150557601616,0.33801838173656806,0.500782238957858,0.515151411325914,0.44265562486635074,0.3870587769205609,0.5134776982773092,0.4117920412936158,0.4229914581455042,0.4403890753376665],[1.0,1.0,1.0,1.0,1.0,1.0,1.0,1.0,1.0,1.0,1.0,1.0,1.0,1.0,1.0,1.0]],[18.967205681753498,56.69973162247423,-23.229142625617285]]},"policies":[[3,[0.9,0.0071428571428571435,0.0,0.0071428571428571435,0.0071428571428571435,0.0071428571428571435,0.0,0.0,0.0071428571428571435,0.0071428571428571435,0.0071428571428571435,0.0071428571428571435,0.0071428571428571435,0.0071428571428571435,0.0071428571428571435,0.0071428571428571435,0.0071428571428571435,0.0071428571428571435]]],"rounds":[]}');
INSERT INTO "learners" VALUES(3,'{"format":2,"candidates":{"parameters":["w"],"names":["w=0","w=1"],"values":[[0],[1]]},"space":null,"objective":{"weights":{"watch":1.0},"sign":1.0,"guardrails":[]},"learner":{"name":"pasto","settings":{"floor":{"scale":0.1,"offset":0.0,"power":0.0,"limit":0.1},"step":0.01,"initial":null}},"seed":7,"baseline":1,"control":0.1,"limits":{"confidence":0.95,"cap":null,"entry":null,"budget":{}},"retired":[],"learned_rounds":3,"version":3,"asked":0,"learned":{"rounds":3,"log_weights":[-0.02951359479611215,0.0],"total":[[14.33009590738465,14.243646975355247]],"served":[1.4888114562869015,1.5111885437130985]},"policies":[[3,[0.49335992315171623,0.5066400768482837]]],"rounds":[]}');
CREATE TABLE meta (
    name TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO "meta" VALUES('schema','4');
CREATE TABLE policies (
    study INTEGER NOT NULL,
    version INTEGER NOT NULL,
    round INTEGER NOT NULL,
    learned INTEGER,
    text TEXT NOT NULL,
    checksum TEXT NOT NULL,
    after_sequence INTEGER NOT NULL,
    published_at REAL NOT NULL, row_checksum INTEGER,
    PRIMARY KEY (study, version)
) STRICT;
INSERT INTO "policies" VALUES(1,1,1,0,'{"format":1,"study":"feed","version":1,"round":1,"state":"learning","mode":"shuffled","salt":"feed/1","baseline":1,"candidates":[{"index":0,"name":"w=0","values":{"w":0}},{"index":1,"name":"w=1","values":{"w":1}},{"index":2,"name":"w=2","values":{"w":2}},{"index":3,"name":"w=3","values":{"w":3}}],"cells":[{"arm":"control","candidate":1,"until":1801439850948198},{"arm":"learner","candidate":0,"until":1993593435049339},{"arm":"learner","candidate":1,"until":7181740205780151},{"arm":"learner","candidate":2,"until":7373893789881292},{"arm":"learner","candidate":3,"until":7566047373982433},{"arm":"outside","candidate":1,"until":9007199254740992}],"valid_from":1700000000.000179,"expires_after":86400.0,"sha256":"261f9921fed2b6662b08ed3bbc0841403a797aed0cf6c28fd7ad63bc137666e9"}','240ac491234952ef1f53e4168d2c05c0aad58faaaebe55f940f6be1d25ecef38',0,1.70000000000017905234e+09,1895224770);
INSERT INTO "policies" VALUES(2,1,1,0,'{"format":1,"study":"ads","version":1,"round":1,"state":"learning","mode":"shuffled","salt":"ads/1","baseline":0,"candidates":[{"index":0,"name":"w=1,n=2","values":{"w":1,"n":2}},{"index":1,"name":"w=1.300854,n=3","values":{"w":1.300854,"n":3}},{"index":2,"name":"w=0.305395,n=2","values":{"w":0.305395,"n":2}},{"index":3,"name":"w=0.614515,n=2","values":{"w":0.614515,"n":2}},{"index":4,"name":"w=1.619052,n=1","values":{"w":1.619052,"n":1}},{"index":5,"name":"w=1.911783,n=3","values":{"w":1.911783,"n":3}},{"index":6,"name":"w=0.915043,n=1","values":{"w":0.915043,"n":1}},{"index":7,"name":"w=0.223614,n=3","values":{"w":0.223614,"n":3}},{"index":8,"name":"w=1.22687,n=1","values":{"w":1.22687,"n":1}},{"index":9,"name":"w=1.088551,n=2","values":{"w":1.088551,"n":2}},{"index":10,"name":"w=0.08401,n=1","values":{"w":0.08401,"n":1}},{"index":11,"name":"w=0.777331,n=3","values":{"w":0.777331,"n":3}},{"index":12,"name":"w=1.772793,n=2","values":{"w":1.772793,"n":2}}],"cells":[{"arm":"control","candidate":0,"until":900719925474099},{"arm":"learner","candidate":0,"until":8196551321814303},{"arm":"learner","candidate":1,"until":8264105316224861},{"arm":"learner","candidate":2,"until":8331659310635419},{"arm":"learner","candidate":3,"until":8399213305045977},{"arm":"learner","candidate":4,"until":8466767299456535},{"arm":"learner","candidate":5,"until":8534321293867093},{"arm":"learner","candidate":6,"until":8601875288277650},{"arm":"learner","candidate":7,"until":8669429282688207},{"arm":"learner","candidate":8,"until":8736983277098764},{"arm":"learner","candidate":9,"until":8804537271509321},{"arm":"learner","candidate":10,"until":8872091265919878},{"arm":"learner","candidate":11,"until":8939645260330435},{"arm":"learner","candidate":12,"until":9007199254740992}],"valid_from":1700000000.0001814,"expires_after":86400.0,"sha256":"c8ded53d5ca6e12212faa27b3febb5ddb51f1d90bf2db299051a4cba7e55f906"}','af369efcac91790e6972ee7e0dabaaf1c901aaf71898638bdc88f341b575a2e3',0,1.7000000000001814365e+09,1308274894);
INSERT INTO "policies" VALUES(3,1,1,0,'{"format":1,"study":"paper","version":1,"round":1,"state":"learning","mode":"shuffled","salt":"paper/1","baseline":1,"candidates":[{"index":0,"name":"w=0","values":{"w":0}},{"index":1,"name":"w=1","values":{"w":1}}],"cells":[{"arm":"control","candidate":1,"until":900719925474099},{"arm":"learner","candidate":0,"until":4953959590107546},{"arm":"learner","candidate":1,"until":9007199254740992}],"valid_from":1700000000.0001023,"expires_after":86400.0,"sha256":"91522891d6c6bf181ce90ee0eb48094ce83db5d490951d8e46b031aca9eb18ae"}','5e7aa4139f3fdbab3209fe0b646d9533d197be5bacb23e968c4407b12395306a',0,1.70000000000010228163e+09,311224554);
INSERT INTO "policies" VALUES(1,2,2,1,'{"format":1,"study":"feed","version":2,"round":2,"state":"learning","mode":"shuffled","salt":"feed/2","baseline":1,"candidates":[{"index":0,"name":"w=0","values":{"w":0}},{"index":1,"name":"w=1","values":{"w":1}}],"cells":[{"arm":"control","candidate":1,"until":1801439850948198},{"arm":"learner","candidate":0,"until":2377900603251622},{"arm":"learner","candidate":1,"until":7566047373982434},{"arm":"outside","candidate":1,"until":9007199254740992}],"valid_from":1700003660.0,"expires_after":86400.0,"sha256":"cb639f1f8cf18f20c0ebf697e67eedcffe16eeb8cc76728379f941e2db5a88bc"}','7cf5ab583571b806bd7e60f87883da5e6d7f1d190d688a87e4f4451b9025b4a6',95,1700003660.0,-1672017868);
INSERT INTO "policies" VALUES(2,2,2,1,'{"format":1,"study":"ads","version":2,"round":2,"state":"learning","mode":"shuffled","salt":"ads/2","baseline":0,"candidates":[{"index":0,"name":"w=1,n=2","values":{"w":1,"n":2}},{"index":1,"name":"w=1.300854,n=3","values":{"w":1.300854,"n":3}},{"index":3,"name":"w=0.614515,n=2","values":{"w":0.614515,"n":2}},{"index":4,"name":"w=1.619052,n=1","values":{"w":1.619052,"n":1}},{"index":5,"name":"w=1.911783,n=3","values":{"w":1.911783,"n":3}},{"index":6,"name":"w=0.915043,n=1","values":{"w":0.915043,"n":1}},{"index":7,"name":"w=0.223614,n=3","values":{"w":0.223614,"n":3}},{"index":8,"name":"w=1.22687,n=1","values":{"w":1.22687,"n":1}},{"index":9,"name":"w=1.088551,n=2","values":{"w":1.088551,"n":2}},{"index":10,"name":"w=0.08401,n=1","values":{"w":0.08401,"n":1}},{"index":11,"name":"w=0.777331,n=3","values":{"w":0.777331,"n":3}},{"index":12,"name":"w=1.772793,n=2","values":{"w":1.772793,"n":2}}],"cells":[{"arm":"control","candidate":0,"until":900719925474099},{"arm":"learner","candidate":0,"until":8196551321814303},{"arm":"learner","candidate":1,"until":8270246588444002},{"arm":"learner","candidate":3,"until":8343941855073701},{"arm":"learner","candidate":4,"until":8417637121703400},{"arm":"learner","candidate":5,"until":8491332388333099},{"arm":"learner","candidate":6,"until":8565027654962798},{"arm":"learner","candidate":7,"until":8638722921592497},{"arm":"learner","candidate":8,"until":8712418188222196},{"arm":"learner","candidate":9,"until":8786113454851895},{"arm":"learner","candidate":10,"until":8859808721481594},{"arm":"learner","candidate":11,"until":8933503988111293},{"arm":"learner","candidate":12,"until":9007199254740992}],"valid_from":1700003660.0,"expires_after":86400.0,"sha256":"6f657a5965aa9568d35cc9e1d1d25d237a33d89782dc0e4cbf302175456fe95f"}','e3e67ce6c84b27090ea078499ba1fc6315b8c4dc9f0e5a5efd704c2f5d56538f',95,1700003660.0,-1034250776);
INSERT INTO "policies" VALUES(3,2,2,1,'{"format":1,"study":"paper","version":2,"round":2,"state":"learning","mode":"shuffled","salt":"paper/2","baseline":1,"candidates":[{"index":0,"name":"w=0","values":{"w":0}},{"index":1,"name":"w=1","values":{"w":1}}],"cells":[{"arm":"control","candidate":1,"until":900719925474099},{"arm":"learner","candidate":0,"until":4917481649049107},{"arm":"learner","candidate":1,"until":9007199254740992}],"valid_from":1700003660.0,"expires_after":86400.0,"sha256":"7f61dc61c90c7b61859d7f826504f90f4ea076ae594e9b84edcde4e14d4c6a90"}','eb1b1dfbf0c7534aa19013185540e1cc3fff768fc2d770ca4e7193dc51183d7e',95,1700003660.0,-1622476523);
INSERT INTO "policies" VALUES(1,3,3,2,'{"format":1,"study":"feed","version":3,"round":3,"state":"learning","mode":"shuffled","salt":"feed/3","baseline":1,"candidates":[{"index":0,"name":"w=0","values":{"w":0}},{"index":1,"name":"w=1","values":{"w":1}}],"cells":[{"arm":"control","candidate":1,"until":1801439850948198},{"arm":"learner","candidate":0,"until":2377900603251622},{"arm":"learner","candidate":1,"until":7566047373982434},{"arm":"outside","candidate":1,"until":9007199254740992}],"valid_from":1700007320.0,"expires_after":86400.0,"sha256":"7234a590a65e221e6b678b7af7004fa1cf96c6c217c223d5655f65a839957adf"}','030297534a313072efb72242c6617dd8ca71714726600a2ddb25e94396335bea',190,1700007320.0,781845572);
INSERT INTO "policies" VALUES(2,3,3,2,'{"format":1,"study":"ads","version":3,"round":3,"state":"learning","mode":"shuffled","salt":"ads/3","baseline":0,"candidates":[{"index":0,"name":"w=1,n=2","values":{"w":1,"n":2}},{"index":1,"name":"w=1.300854,n=3","values":{"w":1.300854,"n":3}},{"index":3,"name":"w=0.614515,n=2","values":{"w":0.614515,"n":2}},{"index":4,"name":"w=1.619052,n=1","values":{"w":1.619052,"n":1}},{"index":5,"name":"w=1.911783,n=3","values":{"w":1.911783,"n":3}},{"index":6,"name":"w=0.915043,n=1","values":{"w":0.915043,"n":1}},{"index":8,"name":"w=1.22687,n=1","values":{"w":1.22687,"n":1}},{"index":9,"name":"w=1.088551,n=2","values":{"w":1.088551,"n":2}},{"index":10,"name":"w=0.08401,n=1","values":{"w":0.08401,"n":1}},{"index":11,"name":"w=0.777331,n=3","values":{"w":0.777331,"n":3}},{"index":12,"name":"w=1.772793,n=2","values":{"w":1.772793,"n":2}},{"index":13,"name":"w=1.046218,n=3","values":{"w":1.046218,"n":3}},{"index":14,"name":"w=1.192307,n=3","values":{"w":1.192307,"n":3}},{"index":15,"name":"w=0.036869,n=1","values":{"w":0.036869,"n":1}}],"cells":[{"arm":"control","candidate":0,"until":900719925474099},{"arm":"learner","candidate":0,"until":8196551321814303},{"arm":"learner","candidate":1,"until":8258908855116356},{"arm":"learner","candidate":3,"until":8321266388418409},{"arm":"learner","candidate":4,"until":8383623921720462},{"arm":"learner","candidate":5,"until":8445981455022515},{"arm":"learner","candidate":6,"until":8508338988324568},{"arm":"learner","candidate":8,"until":8570696521626621},{"arm":"learner","candidate":9,"until":8633054054928674},{"arm":"learner","candidate":10,"until":8695411588230727},{"arm":"learner","candidate":11,"until":8757769121532780},{"arm":"learner","candidate":12,"until":8820126654834833},{"arm":"learner","candidate":13,"until":8882484188136886},{"arm":"learner","candidate":14,"until":8944841721438939},{"arm":"learner","candidate":15,"until":9007199254740992}],"valid_from":1700007320.0,"expires_after":86400.0,"sha256":"821b910d69833470746ce98f34341684209bc826e84d603b72f46f6b8bfdc08c"}','847f9ba8f97edb2944540f2bcd516229a573044897ba7037038e34597fe8c40d',190,1700007320.0,295040242);
INSERT INTO "policies" VALUES(3,3,3,2,'{"format":1,"study":"paper","version":3,"round":3,"state":"learning","mode":"shuffled","salt":"paper/3","baseline":1,"candidates":[{"index":0,"name":"w=0","values":{"w":0}},{"index":1,"name":"w=1","values":{"w":1}}],"cells":[{"arm":"control","candidate":1,"until":900719925474099},{"arm":"learner","candidate":0,"until":4899737832831153},{"arm":"learner","candidate":1,"until":9007199254740992}],"valid_from":1700007320.0,"expires_after":86400.0,"sha256":"91bdbe8b5ba5f880d1549b11340108b723c9253316dbcf93e3134ebb4a95c5f1"}','0818ecebb776023e59b69848dbaf331c507e12457b97a8aa121a17e2a9d57a5a',190,1700007320.0,-519151487);
INSERT INTO "policies" VALUES(1,4,4,3,'{"format":1,"study":"feed","version":4,"round":4,"state":"learning","mode":"shuffled","salt":"feed/4","baseline":1,"candidates":[{"index":0,"name":"w=0","values":{"w":0}},{"index":1,"name":"w=1","values":{"w":1}},{"index":2,"name":"w=2","values":{"w":2}},{"index":3,"name":"w=3","values":{"w":3}}],"cells":[{"arm":"control","candidate":1,"until":1801439850948198},{"arm":"learner","candidate":0,"until":2145652961139753},{"arm":"learner","candidate":1,"until":6679698615239181},{"arm":"learner","candidate":2,"until":7419756802151023},{"arm":"learner","candidate":3,"until":7566047373982434},{"arm":"outside","candidate":1,"until":9007199254740992}],"valid_from":1700010980.0,"expires_after":86400.0,"sha256":"42c7e169808f3ade911f6e0df022c6b7561aa94f7647906d94a8430ad598ecf7"}','87f2c0e25abce34a667b3921bc7544e835783dd8e9d9754f5a12de71df6b608e',285,1700010980.0,-168284496);
INSERT INTO "policies" VALUES(2,4,4,3,'{"format":1,"study":"ads","version":4,"round":4,"state":"learning","mode":"shuffled","salt":"ads/4","baseline":0,"candidates":[{"index":0,"name":"w=1,n=2","values":{"w":1,"n":2}},{"index":1,"name":"w=1.300854,n=3","values":{"w":1.300854,"n":3}},{"index":3,"name":"w=0.614515,n=2","values":{"w":0.614515,"n":2}},{"index":4,"name":"w=1.619052,n=1","values":{"w":1.619052,"n":1}},{"index":5,"name":"w=1.911783,n=3","values":{"w":1.911783,"n":3}},{"index":8,"name":"w=1.22687,n=1","values":{"w":1.22687,"n":1}},{"index":9,"name":"w=1.088551,n=2","values":{"w":1.088551,"n":2}},{"index":10,"name":"w=0.08401,n=1","values":{"w":0.08401,"n":1}},{"index":11,"name":"w=0.777331,n=3","values":{"w":0.777331,"n":3}},{"index":12,"name":"w=1.772793,n=2","values":{"w":1.772793,"n":2}},{"index":13,"name":"w=1.046218,n=3","values":{"w":1.046218,"n":3}},{"index":14,"name":"w=1.192307,n=3","values":{"w":1.192307,"n":3}},{"index":15,"name":"w=0.036869,n=1","values":{"w":0.036869,"n":1}},{"index":16,"name":"w=0.900244,n=3","values":{"w":0.900244,"n":3}},{"index":17,"name":"w=2,n=2","values":{"w":2.0,"n":2}}],"cells":[{"arm":"control","candidate":0,"until":900719925474099},{"arm":"learner","candidate":0,"until":8196551321814302},{"arm":"learner","candidate":1,"until":8254454745594780},{"arm":"learner","candidate":3,"until":8312358169375258},{"arm":"learner","candidate":4,"until":8370261593155736},{"arm":"learner","candidate":5,"until":8428165016936214},{"arm":"learner","candidate":8,"until":8486068440716692},{"arm":"learner","candidate":9,"until":8543971864497170},{"arm":"learner","candidate":10,"until":8601875288277648},{"arm":"learner","candidate":11,"until":8659778712058126},{"arm":"learner","candidate":12,"until":8717682135838604},{"arm":"learner","candidate":13,"until":8775585559619082},{"arm":"learner","candidate":14,"until":8833488983399560},{"arm":"learner","candidate":15,"until":8891392407180038},{"arm":"learner","candidate":16,"until":8949295830960515},{"arm":"learner","candidate":17,"until":9007199254740992}],"valid_from":1700010980.0,"expires_after":86400.0,"sha256":"88358ca3aee7795e96f15f4c0d7457e755651e54c10b89f9ec5c935cbb7932c9"}','0e160f9a3b5bfe78e2c11f0cb97f69993c5a8b46b9b879ec2fdbd5f57794e6e5',285,1700010980.0,1277708143);
INSERT INTO "policies" VALUES(3,4,4,3,'{"format":1,"study":"paper","version":4,"round":4,"state":"learning","mode":"shuffled","salt":"paper/4","baseline":1,"candidates":[{"index":0,"name":"w=0","values":{"w":0}},{"index":1,"name":"w=1","values":{"w":1}}],"cells":[{"arm":"control","candidate":1,"until":900719925474099},{"arm":"learner","candidate":0,"until":4900131944392190},{"arm":"learner","candidate":1,"until":9007199254740992}],"valid_from":1700010980.0,"expires_after":86400.0,"sha256":"862e6e75b81c7ddfa69a0ca30d787be3d81fa10a97fa274e81242b01957851ed"}','2612f7ce306222b0ec18a4659e3b942c09bae346245573126945fc6def31c505',285,1700010980.0,1549905174);
INSERT INTO "policies" VALUES(1,5,5,NULL,'{"format":1,"study":"feed","version":5,"round":5,"state":"paused","mode":"sticky","salt":"feed","baseline":1,"candidates":[{"index":1,"name":"w=1","values":{"w":1}}],"cells":[{"arm":"held","candidate":1,"until":9007199254740992}],"valid_from":1700010980.243958,"expires_after":86400.0,"sha256":"96b17390192c4c4be4ddb5db600a818cd3407b449f6ad776ec5d9a647a4bef21"}','afedba8920210451cc61bf553a10ce229f2140bb6a0d9dc6ad84d68247c66532',285,1.70001098024395799635e+09,980108624);
INSERT INTO "policies" VALUES(1,6,6,4,'{"format":1,"study":"feed","version":6,"round":6,"state":"learning","mode":"shuffled","salt":"feed/6","baseline":1,"candidates":[{"index":0,"name":"w=0","values":{"w":0}},{"index":1,"name":"w=1","values":{"w":1}},{"index":2,"name":"w=2","values":{"w":2}},{"index":3,"name":"w=3","values":{"w":3}}],"cells":[{"arm":"control","candidate":1,"until":1801439850948198},{"arm":"learner","candidate":0,"until":2027259528181763},{"arm":"learner","candidate":1,"until":6559339805246541},{"arm":"learner","candidate":2,"until":7379875426339495},{"arm":"learner","candidate":3,"until":7566047373982434},{"arm":"outside","candidate":1,"until":9007199254740992}],"valid_from":1700010980.2443004,"expires_after":86400.0,"sha256":"7a3a8cdb4b4f3001802840ee3765c968e49bc404e6c01a2634387e16926730dd"}','be5884ac1cf7e52c4d15919c369553e499cee9fa249844cb79959a48aa7a73ed',285,1.70001098024430036541e+09,-1829509853);
INSERT INTO "policies" VALUES(1,7,7,NULL,'{"format":1,"study":"feed","version":7,"round":7,"state":"confirming","mode":"sticky","salt":"feed","baseline":1,"candidates":[{"index":1,"name":"w=1","values":{"w":1}},{"index":2,"name":"w=2","values":{"w":2}}],"cells":[{"arm":"control","candidate":1,"until":3002399751580331},{"arm":"single","candidate":2,"until":6004799503160662},{"arm":"blend","candidate":1,"until":8782072787341823},{"arm":"blend","candidate":2,"until":9007199254740992}],"valid_from":1700010980.2446787,"expires_after":86400.0,"sha256":"697af92469ad0d933776d3331eb6443fb6dcac5314a52736aa250f65ae1c4ee8"}','65389b2e909b57b998ea966a0efe93bea40b5cdec9f173ad332986b967d964b7',285,1.70001098024467873571e+09,1140293980);
CREATE TABLE rejected_keys (
    study INTEGER NOT NULL,
    key_prefix TEXT NOT NULL,
    events INTEGER NOT NULL,
    PRIMARY KEY (study, key_prefix)
) STRICT, WITHOUT ROWID;
CREATE TABLE rejected_numbers (
    study INTEGER NOT NULL,
    source TEXT NOT NULL,
    events INTEGER NOT NULL,
    first_position INTEGER NOT NULL,
    last_position INTEGER NOT NULL,
    PRIMARY KEY (study, source)
) STRICT, WITHOUT ROWID;
CREATE TABLE rejected_reasons (
    study INTEGER NOT NULL,
    kind TEXT NOT NULL,
    reason TEXT NOT NULL,
    events INTEGER NOT NULL,
    first_at REAL NOT NULL,
    PRIMARY KEY (study, kind)
) STRICT, WITHOUT ROWID;
INSERT INTO "rejected_reasons" VALUES(3,'name is ''like'', which no metric of this study reads; its metrics read ''watch''','name is ''like'', which no metric of this study reads; its metrics read ''watch''',15,1700000060.0);
CREATE TABLE studies (
    number INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    generation INTEGER NOT NULL,
    state TEXT NOT NULL,
    document TEXT NOT NULL,
    seed TEXT NOT NULL,
    round INTEGER NOT NULL,
    version INTEGER NOT NULL,
    opened_at REAL NOT NULL,
    created_at REAL NOT NULL,
    details TEXT NOT NULL
) STRICT;
INSERT INTO "studies" VALUES(1,'feed',9,'confirming','{"name":"feed","unit":"user","description":"","baseline":{"w":1},"parameters":{"w":[0,1,2,3]},"metrics":{"watch":{"event":"watch","value":"seconds","per_unit":"sum","range":[0.0,20.0],"covariate":{"lookback":604800.0,"metric":"watch"}},"like_rate":{"ratio":[{"event":"like","per_unit":"count","range":[0.0,20.0]},{"event":"watch","per_unit":"count","range":[0.0,20.0]}]}},"goal":{"maximize":"watch"},"guardrails":[{"keep":"like_rate","at_least":"-20%","penalty":5.0,"budget":"10%","floor":"-90%","tolerance":"20%"}],"traffic":{"control":0.2,"explore":0.8,"floor":0.08,"cap":0.6,"entry":0.3},"rounds":{"every":3600.0,"maturity":0.0,"late":7200.0},"learner":{"name":"thompson","draws":32,"structure":"auto","contrast":"auto","half_life":null},"confidence":0.95,"expires_after":86400.0}','7',8,7,1700014580.0,1700000000.0,'{"waiting":[],"paused_from":null,"frozen":{"blend":[[1,0.9250178237322753],[2,0.07498217626772473]],"single":2,"certified":false,"split":{"control":0.3333333333333333,"single":0.3333333333333333,"blend":0.3333333333333333},"answer":{"probabilities":{"w=1":0.9250178237322753,"w=2":0.07498217626772473},"value":2.696699533517176,"metrics":{"watch":5.891636693270013,"like_rate.numerator":0.476037651431282,"like_rate.denominator":1.0,"like_rate":0.476037651431282},"lifts":{"watch":2.6966995335171884,"like_rate.numerator":1.7870799134125592,"like_rate.denominator":0.0,"like_rate":1.7870799134125592},"prices":{"like_rate":0.0},"feasible":true,"shortfalls":{},"single":"w=2","single_value":35.964540744837535,"gain":{"candidate":"w=2","value":-33.26784121132036,"goal":-33.26784121132036,"violations":{}},"certificate":{"confidence":0.95,"certified":false,"holds":{"like_rate":0.9953475008004583},"intervals":{"watch":[5.353308923255044,6.429964463284982],"like_rate.numerator":[0.3087387574539824,0.6433365454085817],"like_rate.denominator":[0.9996878497768287,1.0003121502231713]},"understated_errors":{"watch":2.3725109082657068}},"outlook":{"gain":32.40614752560325,"probability":1.0,"worth":0.03640203235865444,"advice":"keep learning: knowing the truth would raise f by 32.4 on average, and by more than 0.0364 with probability 100%","moves":[{"candidate":"w=0","change":-10.804213660314744,"metrics":{"watch":-10.804213660314744,"like_rate.numerator":0.0,"like_rate.denominator":0.0}},{"candidate":"w=2","change":-3.72033668890424,"metrics":{"watch":-3.72033668890424,"like_rate.numerator":0.0,"like_rate.denominator":0.0}},{"candidate":"w=3","change":-1.0816356864422119,"metrics":{"watch":-1.0816356864422119,"like_rate.numerator":0.0,"like_rate.denominator":0.0}}]}}},"horizon":null,"breaker":{"since":0,"verdicts":[{"name":"like_rate","arm":"blend","state":"holds","p_value":1.0,"since":null,"bounded":false,"judged":"control","allowed":null},{"name":"like_rate","arm":"single","state":"holds","p_value":1.0,"since":null,"bounded":false,"judged":"control","allowed":null}],"tripped":null,"carried":{"method":3,"vigil":{"seen":[true,true],"pooled":[[10.066666666666666,0.0],[38.0],[[[29.548487677962218,0.0],[0.0,0.0]],[[8.042956877805613,0.0],[0.0,0.0]]],[30.0,8.0]],"held":{"like_rate":{"highest":null,"latest":null,"rounds":3,"held":[null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null],"best":[null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null],"since":[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0],"scale":5.402234320978838,"waiting":[[-14.538242313444252,8.442056218837942,22.0],[-9.054371345702316,5.740939058348523,16.0],[-2.512315270935961,2.3195178969290757,12.0]],"shares":[-0.6931471805599453,-1.3862943611198906,-2.4849066497880004],"numbers":[1,2,3],"sums":[]}}},"open":[]}},"correctable":[],"identity":null}');
INSERT INTO "studies" VALUES(2,'ads',5,'learning','{"name":"ads","unit":"user","description":"","baseline":{"w":1,"n":2},"ranges":{"w":{"from":0.0,"to":2.0},"n":{"from":1,"to":3,"whole":true}},"metrics":{"watch":{"event":"watch","value":"seconds","per_unit":"sum","range":[0.0,20.0],"covariate":{"lookback":604800.0,"metric":"watch"}},"like_rate":{"ratio":[{"event":"like","per_unit":"count","range":[0.0,20.0]},{"event":"watch","per_unit":"count","range":[0.0,20.0]}]}},"goal":{"maximize":"watch"},"guardrails":[{"keep":"like_rate","at_least":"-20%","penalty":5.0,"budget":"10%","floor":"-90%","tolerance":"20%"}],"traffic":{"control":0.1,"explore":1.0,"floor":0.1},"rounds":{"every":3600.0,"maturity":0.0,"late":0.0},"learner":{"name":"thompson","draws":32,"structure":"process","contrast":null,"half_life":null},"confidence":0.95,"expires_after":86400.0}','7',4,4,1700010980.0,1700000000.0,'{"waiting":[],"paused_from":null,"frozen":null,"horizon":null,"breaker":{"since":0,"verdicts":[{"name":"like_rate","arm":"learner","state":"holds","p_value":1.0,"since":null,"bounded":false,"judged":"control","allowed":null}],"tripped":null,"carried":{"method":3,"vigil":{"seen":[true,true],"pooled":[[7.5,0.0],[26.0],[[[24.89079754601227,0.0],[0.0,0.0]],[[1.722699386503068,0.0],[0.0,0.0]]],[25.0,1.0]],"held":{"like_rate":{"highest":null,"latest":null,"rounds":3,"held":[null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null],"best":[null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null],"since":[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0],"scale":4.667213830729072,"waiting":[[-3.4615384615384612,2.333606915364536,4.0]],"shares":[-0.18232155679395462],"numbers":[3],"sums":[]}}},"open":[]}},"correctable":[],"identity":null}');
INSERT INTO "studies" VALUES(3,'paper',5,'learning','{"name":"paper","unit":"user","description":"","baseline":{"w":1},"parameters":{"w":[0,1]},"metrics":{"watch":{"event":"watch","value":"seconds","per_unit":"sum","range":[0.0,20.0],"covariate":{"lookback":604800.0,"metric":"watch"}}},"goal":{"maximize":"watch"},"guardrails":[],"traffic":{"control":0.1,"explore":1.0,"floor":0.1},"rounds":{"every":3600.0,"maturity":0.0,"late":0.0},"learner":{"name":"pasto","step":0.01},"confidence":0.95,"expires_after":86400.0}','7',4,4,1700010980.0,1700000000.0,'{"waiting":[],"paused_from":null,"frozen":null,"horizon":null,"breaker":{"since":0,"verdicts":[],"tripped":null,"carried":{"method":3,"vigil":{"seen":[false,false],"pooled":null,"held":null},"open":[]}},"correctable":[],"identity":null}');
CREATE TABLE tallies (
    study INTEGER NOT NULL,
    version INTEGER NOT NULL,
    source TEXT NOT NULL,
    position INTEGER NOT NULL,
    assigned TEXT NOT NULL,
    dropped TEXT NOT NULL,
    PRIMARY KEY (study, version, source)
) STRICT, WITHOUT ROWID;
CREATE INDEX audit_of_study ON audit (study, sequence);
CREATE INDEX archived_by_sequence ON archived_rounds (last_sequence);
COMMIT;
