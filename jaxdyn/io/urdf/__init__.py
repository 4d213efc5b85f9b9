"""URDF robot descriptions, read and written.

Other parts of a system are stored in an additional child of `<robot>`, which other readers ignore. `<table>` contains any table
of a mechanism file (`jaxdyn.io.mechanism.file`) that describes forces, drives, rotors or constraints, as one value in TOML, and
the attribute `toml` of `<joint>` the limits and the armature of a joint with several coordinates:

    <jaxdyn>
      <gravity xyz="0 0 -1.62"/>
      <joint name="elbow" armature="0.2" velocity_scale="0.01"/>
      <joint name="ball" toml="{armature = [0.1, 0.1, 0.2]}"/>
      <table name="joint_stribeck_friction" toml="{stribeck = {elbow = 0.3}, stribeck_velocity = {elbow = 0.1}}"/>
      <table name="actuator" toml="[{name = 'motor', joints = {elbow = 100}, control_range = [-1, 1]}]"/>
      <table name="rod" toml="[{name = 'tie', body_a = 'hull', point_a = [0, 0, 1], body_b = 'arm', length = 0.4}]"/>
    </jaxdyn>

Drives of `<transmission>` elements are read if `<jaxdyn>` states none: a simple transmission is a motor with the name of its
`<actuator>`, whose gear is its `<mechanicalReduction>`, and a joint of any other transmission has a motor without a gear. These
elements are shorter forms for files that are written by hand:

    <jaxdyn>
      <joint name="elbow" stiffness="5.0" rest="0.3"/>
      <drive joint="elbow" gear="100"/>
      <loop_joint name="pin" type="revolute">
        <link1 link="coupler" xyz="0.8 0 0" rpy="0 0 0"/>
        <link2 link="rocker" xyz="0.6 0 0" rpy="0 0 0"/>
        <axis xyz="0 1 0"/>
      </loop_joint>
      <rod name="tie" length="0.4"><link1 link="hull" xyz="0 0 1"/><link2 link="arm" xyz="0 0 0"/></rod>
      <coupling name="gear" joint="finger" driver="thumb" coefficients="0 -1 0.2"/>
    </jaxdyn>

The two frames of a loop joint coincide except for the motion of the joint. `axis` has the same components on the axes of both
frames, and is z if absent; the types are those of `LoopJoint`. Constraints are ordered: first mimic joints in the order of the
joints, then the elements of `<jaxdyn>` in the order of the file, tables last. Without drives and transmissions, every velocity
component has a control, except those of free joints, since floating bases have no motors; an element `<drives joints="all"/>` gives
a control to every component, and `<drives joints="none"/>` to none.
"""
