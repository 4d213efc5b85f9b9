"""URDF robot descriptions, read and written.

URDF does not support loops, rotors and gravity. They are stored in an additional child of `<robot>`, which other readers ignore:

    <jaxdyn>
      <gravity xyz="0 0 -1.62"/>
      <joint name="elbow" armature="0.2" velocity_scale="0.01" stiffness="5.0" rest="0.3"/>
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
joints, then the constraints of `<jaxdyn>` in the order of the file. Drives become `System.drives`. Without drives,
every velocity component has a control, except those of free joints, since floating bases have no motors; an element
`<drives joints="all"/>` gives a control to every component, and `<drives joints="none"/>` to none.
"""
