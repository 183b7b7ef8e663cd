// A ball that bounces once in the time that the clock takes from 0 to 1.
#version 3.7;
global_settings { assumed_gamma 1.0 }
camera { location <0, 2, -6> look_at <0, 1, 0> }
light_source { <4, 8, -6> color rgb 1 }
background { color rgb <0.3, 0.5, 0.8> }
plane { y, 0 pigment { checker color rgb 0.9 color rgb 0.2 } }
sphere {
  <0, 0.6 + 2 * sin(pi * clock), 0>, 0.6
  pigment { color rgb <0.9, 0.2, 0.1> }
  finish { phong 0.8 }
}
