// What the types and ops of the dataflow level refuse, and why.
// RUN: headrace-opt %s --split-input-file --verify-diagnostics --allow-unregistered-dialect

// expected-error @+1 {{a stream carries tensor tiles}}
func.func private @f(%s: !dataflow.stream<f32>)

// -----

// expected-error @+1 {{stream: a loop runs at least once, found 0}}
func.func private @f(%s: !dataflow.stream<tensor<2xf32>, [0 on 0 by 2]>)

// -----

// expected-error @+1 {{stream: loop on dim 1 but tiles have 1 dims}}
func.func private @f(%s: !dataflow.stream<tensor<2xf32>, [2 on 1 by 2]>)

// -----

// expected-error @+1 {{stream: a loop advances by at least one element, found 0}}
func.func private @f(%s: !dataflow.stream<tensor<2xf32>, [2 on 0 by 0]>)

// -----

func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @+1 {{dataflow.section: body arguments must have the types of the operands}}
  %r = dataflow.section "s"(%x) : (tensor<4xf32>) -> tensor<4xf32> {
  ^bb0(%a: tensor<5xf32>):
    %0 = dataflow.load %a at 0 [1] : tensor<5xf32> -> !dataflow.stream<tensor<4xf32>>
    %1 = dataflow.store (%0 at 0 [1]) : (!dataflow.stream<tensor<4xf32>>) -> tensor<4xf32>
    dataflow.yield %1 : tensor<4xf32>
  }
  return %r : tensor<4xf32>
}

// -----

func.func @f(%x: tensor<4xf32>) -> tensor<5xf32> {
  // expected-error @+1 {{dataflow.section: must end in dataflow.yield of the result types}}
  %r = dataflow.section "s"(%x) : (tensor<4xf32>) -> tensor<5xf32> {
  ^bb0(%a: tensor<4xf32>):
    %0 = dataflow.load %a at 0 [1] : tensor<4xf32> -> !dataflow.stream<tensor<4xf32>>
    %y = dataflow.store (%0 at 0 [1]) : (!dataflow.stream<tensor<4xf32>>) -> tensor<4xf32>
    dataflow.yield %y : tensor<4xf32>
  }
  return %r : tensor<5xf32>
}

// -----

func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  %r = dataflow.section "s"(%x) : (tensor<4xf32>) -> tensor<4xf32> {
  ^bb0(%a: tensor<4xf32>):
    // expected-error @+1 {{tensor.neg: is no process of a dataflow.section; put it into a stage}}
    %n = tensor.neg %a : tensor<4xf32> -> tensor<4xf32>
    %0 = dataflow.load %n at 0 [1] : tensor<4xf32> -> !dataflow.stream<tensor<4xf32>>
    %y = dataflow.store (%0 at 0 [1]) : (!dataflow.stream<tensor<4xf32>>) -> tensor<4xf32>
    dataflow.yield %y : tensor<4xf32>
  }
  return %r : tensor<4xf32>
}

// -----

func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  %r = dataflow.section "s"(%x) : (tensor<4xf32>) -> tensor<4xf32> {
  ^bb0(%a: tensor<4xf32>):
    // expected-error @+1 {{dataflow.yield: results of a section are what a dataflow.store or dataflow.scatter makes}}
    dataflow.yield %a : tensor<4xf32>
  }
  return %r : tensor<4xf32>
}

// -----

func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  %r = dataflow.section "s"(%x) : (tensor<4xf32>) -> tensor<4xf32> {
  ^bb0(%a: tensor<4xf32>):
    // expected-error @+1 {{dataflow.load: the view has 2 strides but tiles have 1 dims}}
    %0 = dataflow.load %a at 0 [4, 1] : tensor<4xf32> -> !dataflow.stream<tensor<4xf32>>
    %y = dataflow.store (%0 at 0 [1]) : (!dataflow.stream<tensor<4xf32>>) -> tensor<4xf32>
    dataflow.yield %y : tensor<4xf32>
  }
  return %r : tensor<4xf32>
}

// -----

func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  %r = dataflow.section "s"(%x) : (tensor<4xf32>) -> tensor<4xf32> {
  ^bb0(%a: tensor<4xf32>):
    // expected-error @+1 {{dataflow.load: the view reaches elements 1 to 4 of 4}}
    %0 = dataflow.load %a at 1 [1] : tensor<4xf32> -> !dataflow.stream<tensor<4xf32>>
    %y = dataflow.store (%0 at 0 [1]) : (!dataflow.stream<tensor<4xf32>>) -> tensor<4xf32>
    dataflow.yield %y : tensor<4xf32>
  }
  return %r : tensor<4xf32>
}

// -----

func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  %r = dataflow.section "s"(%x) : (tensor<4xf32>) -> tensor<4xf32> {
  ^bb0(%a: tensor<4xf32>):
    // expected-error @+1 {{dataflow.load: the view reaches elements -1 to 2 of 4}}
    %0 = dataflow.load %a at 2 [-1] : tensor<4xf32> -> !dataflow.stream<tensor<4xf32>>
    %y = dataflow.store (%0 at 0 [1]) : (!dataflow.stream<tensor<4xf32>>) -> tensor<4xf32>
    dataflow.yield %y : tensor<4xf32>
  }
  return %r : tensor<4xf32>
}

// -----

func.func @f(%x: tensor<4xf32>) -> tensor<4xi32> {
  %r = dataflow.section "s"(%x) : (tensor<4xf32>) -> tensor<4xi32> {
  ^bb0(%a: tensor<4xf32>):
    // expected-error @+1 {{dataflow.load: tiles have the element type of the tensor}}
    %0 = dataflow.load %a at 0 [1] : tensor<4xf32> -> !dataflow.stream<tensor<4xi32>>
    %y = dataflow.store (%0 at 0 [1]) : (!dataflow.stream<tensor<4xi32>>) -> tensor<4xi32>
    dataflow.yield %y : tensor<4xi32>
  }
  return %r : tensor<4xi32>
}

// -----

func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  %r = dataflow.section "s"(%x) : (tensor<4xf32>) -> tensor<4xf32> {
  ^bb0(%a: tensor<4xf32>):
    // expected-error @+1 {{expected a stream type}}
    %0 = dataflow.load %a at 0 [1] : tensor<4xf32> -> tensor<4xf32>
    %y = dataflow.store (%0 at 0 [1]) : (tensor<4xf32>) -> tensor<4xf32>
    dataflow.yield %y : tensor<4xf32>
  }
  return %r : tensor<4xf32>
}

// -----

func.func @f(%x: tensor<4xf32>) -> tensor<8xf32> {
  %r = dataflow.section "s"(%x) : (tensor<4xf32>) -> tensor<8xf32> {
  ^bb0(%a: tensor<4xf32>):
    %0 = dataflow.load %a at 0 [1] : tensor<4xf32> -> !dataflow.stream<tensor<4xf32>>
    // expected-error @+1 {{dataflow.store: streams write 4 of 8 elements}}
    %y = dataflow.store (%0 at 0 [2]) : (!dataflow.stream<tensor<4xf32>>) -> tensor<8xf32>
    dataflow.yield %y : tensor<8xf32>
  }
  return %r : tensor<8xf32>
}

// -----

func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  %r = dataflow.section "s"(%x) : (tensor<4xf32>) -> tensor<4xf32> {
  ^bb0(%a: tensor<4xf32>):
    %0 = dataflow.load %a at 0 [1] : tensor<4xf32> -> !dataflow.stream<tensor<4xf32>>
    // expected-error @+1 {{dataflow.store: the view reaches elements 0 to 6 of 4}}
    %y = dataflow.store (%0 at 0 [2]) : (!dataflow.stream<tensor<4xf32>>) -> tensor<4xf32>
    dataflow.yield %y : tensor<4xf32>
  }
  return %r : tensor<4xf32>
}

// -----

func.func @f(%x: tensor<4xf32>) -> tensor<4xi32> {
  %r = dataflow.section "s"(%x) : (tensor<4xf32>) -> tensor<4xi32> {
  ^bb0(%a: tensor<4xf32>):
    %0 = dataflow.load %a at 0 [1] : tensor<4xf32> -> !dataflow.stream<tensor<4xf32>>
    // expected-error @+1 {{dataflow.store: tiles have the element type of the tensor}}
    %y = dataflow.store (%0 at 0 [1]) : (!dataflow.stream<tensor<4xf32>>) -> tensor<4xi32>
    dataflow.yield %y : tensor<4xi32>
  }
  return %r : tensor<4xi32>
}

// -----

func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  %r = dataflow.section "s"(%x) : (tensor<4xf32>) -> tensor<4xf32> {
  ^bb0(%a: tensor<4xf32>):
    %0 = dataflow.load %a at 0 [1] : tensor<4xf32> -> !dataflow.stream<tensor<4xf32>>
    // expected-error @+1 {{dataflow.store: one view for each stream}}
    %y = "dataflow.store"(%0) <{in_views = []}> : (!dataflow.stream<tensor<4xf32>>) -> tensor<4xf32>
    dataflow.yield %y : tensor<4xf32>
  }
  return %r : tensor<4xf32>
}

// -----

func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  %r = dataflow.section "s"(%x) : (tensor<4xf32>) -> tensor<4xf32> {
  ^bb0(%a: tensor<4xf32>):
    %0 = dataflow.load %a at 0 [1] : tensor<4xf32> -> !dataflow.stream<tensor<4xf32>>
    // expected-error @+1 {{dataflow.buffer: the view reaches elements 0 to 3 of 3}}
    %1 = dataflow.buffer [3] (%0 at 0 [1]) to (at 0 [1]) : (!dataflow.stream<tensor<4xf32>>) -> !dataflow.stream<tensor<4xf32>>
    %y = dataflow.store (%1 at 0 [1]) : (!dataflow.stream<tensor<4xf32>>) -> tensor<4xf32>
    dataflow.yield %y : tensor<4xf32>
  }
  return %r : tensor<4xf32>
}

// -----

func.func @f(%x: tensor<4xf32>) -> tensor<4xi32> {
  %r = dataflow.section "s"(%x) : (tensor<4xf32>) -> tensor<4xi32> {
  ^bb0(%a: tensor<4xf32>):
    %0 = dataflow.load %a at 0 [1] : tensor<4xf32> -> !dataflow.stream<tensor<4xf32>>
    // expected-error @+1 {{dataflow.buffer: all streams have one element type}}
    %1 = dataflow.buffer [4] (%0 at 0 [1]) to (at 0 [1]) : (!dataflow.stream<tensor<4xf32>>) -> !dataflow.stream<tensor<4xi32>>
    %y = dataflow.store (%1 at 0 [1]) : (!dataflow.stream<tensor<4xi32>>) -> tensor<4xi32>
    dataflow.yield %y : tensor<4xi32>
  }
  return %r : tensor<4xi32>
}

// -----

func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  %r = dataflow.section "s"(%x) : (tensor<4xf32>) -> tensor<4xf32> {
  ^bb0(%a: tensor<4xf32>):
    %0 = dataflow.load %a at 0 [1] : tensor<4xf32> -> !dataflow.stream<tensor<4xf32>>
    // expected-error @+1 {{dataflow.buffer: 1 frame loops but a stream has 0}}
    %1 = dataflow.buffer [4] (%0 at 0 [1]) to (at 0 [1]) {frames = 1} : (!dataflow.stream<tensor<4xf32>>) -> !dataflow.stream<tensor<4xf32>>
    %y = dataflow.store (%1 at 0 [1]) : (!dataflow.stream<tensor<4xf32>>) -> tensor<4xf32>
    dataflow.yield %y : tensor<4xf32>
  }
  return %r : tensor<4xf32>
}

// -----

func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  %r = dataflow.section "s"(%x) : (tensor<4xf32>) -> tensor<4xf32> {
  ^bb0(%a: tensor<4xf32>):
    %0 = dataflow.load %a at 0 [1] : tensor<4xf32> -> !dataflow.stream<tensor<2xf32>, [2 on 0 by 2]>
    // expected-error @+1 {{dataflow.buffer: the frame loops of all streams must advance alike}}
    %1 = dataflow.buffer [4] (%0 at 0 [1]) to (at 0 [1]) {frames = 1} : (!dataflow.stream<tensor<2xf32>, [2 on 0 by 2]>) -> !dataflow.stream<tensor<4xf32>, [2 repeat]>
    %2 = dataflow.stage "sum"(%1) : (!dataflow.stream<tensor<4xf32>, [2 repeat]>) -> !dataflow.stream<tensor<2xf32>, [2 on 0 by 2]> {
    ^bb1(%t: tensor<4xf32>):
      %h, %g = tensor.split %t {axis = 0 : i64, sizes = array<i64: 2, 2>} : tensor<4xf32> -> tensor<2xf32>, tensor<2xf32>
      dataflow.yield %h : tensor<2xf32>
    }
    %y = dataflow.store (%2 at 0 [1]) : (!dataflow.stream<tensor<2xf32>, [2 on 0 by 2]>) -> tensor<4xf32>
    dataflow.yield %y : tensor<4xf32>
  }
  return %r : tensor<4xf32>
}

// -----

func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  %r = dataflow.section "s"(%x) : (tensor<4xf32>) -> tensor<4xf32> {
  ^bb0(%a: tensor<4xf32>):
    %0 = dataflow.load %a at 0 [1] : tensor<4xf32> -> !dataflow.stream<tensor<4xf32>>
    // expected-error @+1 {{dataflow.buffer: at least one copy}}
    %1 = dataflow.buffer [4] (%0 at 0 [1]) to (at 0 [1]) {copies = 0} : (!dataflow.stream<tensor<4xf32>>) -> !dataflow.stream<tensor<4xf32>>
    %y = dataflow.store (%1 at 0 [1]) : (!dataflow.stream<tensor<4xf32>>) -> tensor<4xf32>
    dataflow.yield %y : tensor<4xf32>
  }
  return %r : tensor<4xf32>
}

// -----

func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  %r = dataflow.section "s"(%x) : (tensor<4xf32>) -> tensor<4xf32> {
  ^bb0(%a: tensor<4xf32>):
    %0 = dataflow.load %a at 0 [1] : tensor<4xf32> -> !dataflow.stream<tensor<4xf32>>
    // expected-error @+1 {{unknown property depth; known: frames, copies, split_dim, units, banks, fill}}
    %1 = dataflow.buffer [4] (%0 at 0 [1]) to (at 0 [1]) {depth = 2} : (!dataflow.stream<tensor<4xf32>>) -> !dataflow.stream<tensor<4xf32>>
    %y = dataflow.store (%1 at 0 [1]) : (!dataflow.stream<tensor<4xf32>>) -> tensor<4xf32>
    dataflow.yield %y : tensor<4xf32>
  }
  return %r : tensor<4xf32>
}

// -----

func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  %r = dataflow.section "s"(%x) : (tensor<4xf32>) -> tensor<4xf32> {
  ^bb0(%a: tensor<4xf32>):
    %0 = dataflow.load %a at 0 [1] : tensor<4xf32> -> !dataflow.stream<tensor<4xf32>>
    %y = dataflow.store (%0 at 0 [1]) : (!dataflow.stream<tensor<4xf32>>) -> tensor<4xf32>
    // expected-error @+1 {{dataflow.buffer: at least one stream in and one out}}
    dataflow.buffer [4] (%0 at 0 [1]) to () : (!dataflow.stream<tensor<4xf32>>) -> ()
    dataflow.yield %y : tensor<4xf32>
  }
  return %r : tensor<4xf32>
}

// -----

func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  %r = dataflow.section "s"(%x) : (tensor<4xf32>) -> tensor<4xf32> {
  ^bb0(%a: tensor<4xf32>):
    %0 = dataflow.load %a at 0 [1] : tensor<4xf32> -> !dataflow.stream<tensor<4xf32>>
    // expected-error @+1 {{dataflow.buffer: one view for each stream}}
    %1 = "dataflow.buffer"(%0) <{shape = array<i64: 4>, in_views = [], out_views = [#dataflow.view<at 0 [1]>]}> : (!dataflow.stream<tensor<4xf32>>) -> !dataflow.stream<tensor<4xf32>>
    %y = dataflow.store (%1 at 0 [1]) : (!dataflow.stream<tensor<4xf32>>) -> tensor<4xf32>
    dataflow.yield %y : tensor<4xf32>
  }
  return %r : tensor<4xf32>
}

// -----

func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  %r = dataflow.section "s"(%x) : (tensor<4xf32>) -> tensor<4xf32> {
  ^bb0(%a: tensor<4xf32>):
    %0 = dataflow.load %a at 0 [1] : tensor<4xf32> -> !dataflow.stream<tensor<4xf32>>
    // expected-error @+1 {{dataflow.stage: body arguments must have the tile types of the inputs}}
    %1 = dataflow.stage "t"(%0) : (!dataflow.stream<tensor<4xf32>>) -> !dataflow.stream<tensor<4xf32>> {
    ^bb1(%t: tensor<3xf32>):
      %n = tensor.neg %t : tensor<3xf32> -> tensor<3xf32>
      dataflow.yield %n : tensor<3xf32>
    }
    %y = dataflow.store (%1 at 0 [1]) : (!dataflow.stream<tensor<4xf32>>) -> tensor<4xf32>
    dataflow.yield %y : tensor<4xf32>
  }
  return %r : tensor<4xf32>
}

// -----

func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  %r = dataflow.section "s"(%x) : (tensor<4xf32>) -> tensor<4xf32> {
  ^bb0(%a: tensor<4xf32>):
    %0 = dataflow.load %a at 0 [1] : tensor<4xf32> -> !dataflow.stream<tensor<4xf32>>
    // expected-error @+1 {{dataflow.stage: must end in dataflow.yield of the output tiles}}
    %1 = dataflow.stage "t"(%0) : (!dataflow.stream<tensor<4xf32>>) -> !dataflow.stream<tensor<2xf32>, [2 on 0 by 2]> {
    ^bb1(%t: tensor<4xf32>):
      %n = tensor.neg %t : tensor<4xf32> -> tensor<4xf32>
      dataflow.yield %n : tensor<4xf32>
    }
    %y = dataflow.store (%1 at 0 [1]) : (!dataflow.stream<tensor<2xf32>, [2 on 0 by 2]>) -> tensor<4xf32>
    dataflow.yield %y : tensor<4xf32>
  }
  return %r : tensor<4xf32>
}

// -----

func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  %r = dataflow.section "s"(%x) : (tensor<4xf32>) -> tensor<4xf32> {
  ^bb0(%a: tensor<4xf32>):
    %0 = dataflow.load %a at 0 [1] : tensor<4xf32> -> !dataflow.stream<tensor<4xf32>>
    %1 = dataflow.stage "t"(%0) : (!dataflow.stream<tensor<4xf32>>) -> !dataflow.stream<tensor<4xf32>> {
    ^bb1(%t: tensor<4xf32>):
      // expected-error @+1 {{test.op: the body of a dataflow.stage holds tensor ops}}
      "test.op"() : () -> ()
      dataflow.yield %t : tensor<4xf32>
    }
    %y = dataflow.store (%1 at 0 [1]) : (!dataflow.stream<tensor<4xf32>>) -> tensor<4xf32>
    dataflow.yield %y : tensor<4xf32>
  }
  return %r : tensor<4xf32>
}

// -----

func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  %r = dataflow.section "s"(%x) : (tensor<4xf32>) -> tensor<4xf32> {
  ^bb0(%a: tensor<4xf32>):
    %0 = dataflow.load %a at 0 [1] : tensor<4xf32> -> !dataflow.stream<tensor<4xf32>>
    // expected-error @+1 {{dataflow.stage: all streams must have the same loop counts, found [(), (2,)]}}
    %1 = dataflow.stage "t"(%0) : (!dataflow.stream<tensor<4xf32>>) -> !dataflow.stream<tensor<2xf32>, [2 on 0 by 2]> {
    ^bb1(%t: tensor<4xf32>):
      %h, %g = tensor.split %t {axis = 0 : i64, sizes = array<i64: 2, 2>} : tensor<4xf32> -> tensor<2xf32>, tensor<2xf32>
      dataflow.yield %h : tensor<2xf32>
    }
    %y = dataflow.store (%1 at 0 [1]) : (!dataflow.stream<tensor<2xf32>, [2 on 0 by 2]>) -> tensor<4xf32>
    dataflow.yield %y : tensor<4xf32>
  }
  return %r : tensor<4xf32>
}

// -----

func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  %r = dataflow.section "s"(%x) : (tensor<4xf32>) -> tensor<4xf32> {
  ^bb0(%a: tensor<4xf32>):
    %0 = dataflow.load %a at 0 [1] : tensor<4xf32> -> !dataflow.stream<tensor<4xf32>, [2 repeat]>
    // expected-error @+1 {{dataflow.stage: output loops must tile the result without repeats or gaps}}
    %1 = dataflow.stage "t"(%0) : (!dataflow.stream<tensor<4xf32>, [2 repeat]>) -> !dataflow.stream<tensor<4xf32>, [2 repeat]> {
    ^bb1(%t: tensor<4xf32>):
      %n = tensor.neg %t : tensor<4xf32> -> tensor<4xf32>
      dataflow.yield %n : tensor<4xf32>
    }
    %y = dataflow.store (%1 at 0 [1]) : (!dataflow.stream<tensor<4xf32>, [2 repeat]>) -> tensor<4xf32>
    dataflow.yield %y : tensor<4xf32>
  }
  return %r : tensor<4xf32>
}

// -----

func.func @f(%x: tensor<4xf32>) -> tensor<3xf32> {
  %r = dataflow.section "s"(%x) : (tensor<4xf32>) -> tensor<3xf32> {
  ^bb0(%a: tensor<4xf32>):
    %0 = dataflow.load %a at 0 [1] : tensor<4xf32> -> !dataflow.stream<tensor<1xf32>, [2 on 0 by 2]>
    // expected-error @+1 {{dataflow.stage: output loops must tile the result without repeats or gaps}}
    %1 = dataflow.stage "t"(%0) : (!dataflow.stream<tensor<1xf32>, [2 on 0 by 2]>) -> !dataflow.stream<tensor<1xf32>, [2 on 0 by 2]> {
    ^bb1(%t: tensor<1xf32>):
      dataflow.yield %t : tensor<1xf32>
    }
    %y = dataflow.store (%1 at 0 [1]) : (!dataflow.stream<tensor<1xf32>, [2 on 0 by 2]>) -> tensor<3xf32>
    dataflow.yield %y : tensor<3xf32>
  }
  return %r : tensor<3xf32>
}

// -----

func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  %r = dataflow.section "s"(%x) : (tensor<4xf32>) -> tensor<4xf32> {
  ^bb0(%a: tensor<4xf32>):
    %0 = dataflow.load %a at 0 [1] : tensor<4xf32> -> !dataflow.stream<tensor<4xf32>>
    // expected-error @+1 {{dataflow.stage: 3 parts do not divide dim 0 of extent 4}}
    %1 = dataflow.stage "t"(%0) par [0 by 3] : (!dataflow.stream<tensor<4xf32>>) -> !dataflow.stream<tensor<4xf32>> {
    ^bb1(%t: tensor<4xf32>):
      %n = tensor.neg %t : tensor<4xf32> -> tensor<4xf32>
      dataflow.yield %n : tensor<4xf32>
    }
    %y = dataflow.store (%1 at 0 [1]) : (!dataflow.stream<tensor<4xf32>>) -> tensor<4xf32>
    dataflow.yield %y : tensor<4xf32>
  }
  return %r : tensor<4xf32>
}

// -----

func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  %r = dataflow.section "s"(%x) : (tensor<4xf32>) -> tensor<4xf32> {
  ^bb0(%a: tensor<4xf32>):
    %0 = dataflow.load %a at 0 [1] : tensor<4xf32> -> !dataflow.stream<tensor<4xf32>>
    // expected-error @+1 {{dataflow.stage: par names dim 1 but tiles have 1 dims}}
    %1 = dataflow.stage "t"(%0) par [1 by 2] : (!dataflow.stream<tensor<4xf32>>) -> !dataflow.stream<tensor<4xf32>> {
    ^bb1(%t: tensor<4xf32>):
      %n = tensor.neg %t : tensor<4xf32> -> tensor<4xf32>
      dataflow.yield %n : tensor<4xf32>
    }
    %y = dataflow.store (%1 at 0 [1]) : (!dataflow.stream<tensor<4xf32>>) -> tensor<4xf32>
    dataflow.yield %y : tensor<4xf32>
  }
  return %r : tensor<4xf32>
}

// -----

func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  %r = dataflow.section "s"(%x) : (tensor<4xf32>) -> tensor<4xf32> {
  ^bb0(%a: tensor<4xf32>):
    %0 = dataflow.load %a at 0 [1] : tensor<4xf32> -> !dataflow.stream<tensor<4xf32>>
    // expected-error @+1 {{dataflow.stage: par names a dim twice}}
    %1 = dataflow.stage "t"(%0) par [0 by 2, 0 by 2] : (!dataflow.stream<tensor<4xf32>>) -> !dataflow.stream<tensor<4xf32>> {
    ^bb1(%t: tensor<4xf32>):
      %n = tensor.neg %t : tensor<4xf32> -> tensor<4xf32>
      dataflow.yield %n : tensor<4xf32>
    }
    %y = dataflow.store (%1 at 0 [1]) : (!dataflow.stream<tensor<4xf32>>) -> tensor<4xf32>
    dataflow.yield %y : tensor<4xf32>
  }
  return %r : tensor<4xf32>
}

// -----

func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  %r = dataflow.section "s"(%x) : (tensor<4xf32>) -> tensor<4xf32> {
  ^bb0(%a: tensor<4xf32>):
    %0 = dataflow.load %a at 0 [1] : tensor<4xf32> -> !dataflow.stream<tensor<4xf32>>
    %y = dataflow.store (%0 at 0 [1]) : (!dataflow.stream<tensor<4xf32>>) -> tensor<4xf32>
    // expected-error @+1 {{dataflow.stage: at least one output}}
    dataflow.stage "t"(%0) : (!dataflow.stream<tensor<4xf32>>) -> () {
    ^bb1(%t: tensor<4xf32>):
      dataflow.yield
    }
    dataflow.yield %y : tensor<4xf32>
  }
  return %r : tensor<4xf32>
}

// -----

func.func @f(%x: tensor<5x3xf32>, %i: tensor<2xi64>) -> tensor<2x2xf32> {
  %r = dataflow.section "s"(%x, %i) : (tensor<5x3xf32>, tensor<2xi64>) -> tensor<2x2xf32> {
  ^bb0(%a: tensor<5x3xf32>, %b: tensor<2xi64>):
    %0 = dataflow.load %b at 0 [1] : tensor<2xi64> -> !dataflow.stream<tensor<2xi64>>
    // expected-error @+1 {{dataflow.gather: rows of tensor<5x3xf32> at (2,) indices make tiles (2, 3), found (2, 2)}}
    %1 = dataflow.gather %a[%0] : tensor<5x3xf32>, !dataflow.stream<tensor<2xi64>> -> !dataflow.stream<tensor<2x2xf32>>
    %y = dataflow.store (%1 at 0 [2, 1]) : (!dataflow.stream<tensor<2x2xf32>>) -> tensor<2x2xf32>
    dataflow.yield %y : tensor<2x2xf32>
  }
  return %r : tensor<2x2xf32>
}

// -----

func.func @f(%x: tensor<5x3xf32>, %i: tensor<2xi64>) -> tensor<2x3xi32> {
  %r = dataflow.section "s"(%x, %i) : (tensor<5x3xf32>, tensor<2xi64>) -> tensor<2x3xi32> {
  ^bb0(%a: tensor<5x3xf32>, %b: tensor<2xi64>):
    %0 = dataflow.load %b at 0 [1] : tensor<2xi64> -> !dataflow.stream<tensor<2xi64>>
    // expected-error @+1 {{dataflow.gather: indices are integers and rows have the table's element type}}
    %1 = dataflow.gather %a[%0] : tensor<5x3xf32>, !dataflow.stream<tensor<2xi64>> -> !dataflow.stream<tensor<2x3xi32>>
    %y = dataflow.store (%1 at 0 [3, 1]) : (!dataflow.stream<tensor<2x3xi32>>) -> tensor<2x3xi32>
    dataflow.yield %y : tensor<2x3xi32>
  }
  return %r : tensor<2x3xi32>
}

// -----

func.func @f(%x: tensor<5x3xf32>, %i: tensor<2xi64>) -> tensor<4x3xf32> {
  %r = dataflow.section "s"(%x, %i) : (tensor<5x3xf32>, tensor<2xi64>) -> tensor<4x3xf32> {
  ^bb0(%a: tensor<5x3xf32>, %b: tensor<2xi64>):
    %0 = dataflow.load %b at 0 [1] : tensor<2xi64> -> !dataflow.stream<tensor<2xi64>>
    // expected-error @+1 {{dataflow.gather: all streams must have the same loop counts, found [(), (2,)]}}
    %1 = dataflow.gather %a[%0] : tensor<5x3xf32>, !dataflow.stream<tensor<2xi64>> -> !dataflow.stream<tensor<2x3xf32>, [2 on 0 by 2]>
    %y = dataflow.store (%1 at 0 [3, 1]) : (!dataflow.stream<tensor<2x3xf32>, [2 on 0 by 2]>) -> tensor<4x3xf32>
    dataflow.yield %y : tensor<4x3xf32>
  }
  return %r : tensor<4x3xf32>
}

// -----

func.func @f(%x: tensor<5x3xf32>, %i: tensor<2xi64>) -> tensor<5x3xf32> {
  %r = dataflow.section "s"(%x, %i) : (tensor<5x3xf32>, tensor<2xi64>) -> tensor<5x3xf32> {
  ^bb0(%a: tensor<5x3xf32>, %b: tensor<2xi64>):
    %0 = dataflow.load %b at 0 [1] : tensor<2xi64> -> !dataflow.stream<tensor<2xi64>>
    %1 = dataflow.load %a at 0 [1, 3] : tensor<5x3xf32> -> !dataflow.stream<tensor<3x2xf32>>
    // expected-error @+1 {{dataflow.scatter: row tiles must be index tile shape followed by the row shape}}
    %y = dataflow.scatter %a[%0] = %1 : tensor<5x3xf32>, !dataflow.stream<tensor<2xi64>>, !dataflow.stream<tensor<3x2xf32>> -> tensor<5x3xf32>
    dataflow.yield %y : tensor<5x3xf32>
  }
  return %r : tensor<5x3xf32>
}

// -----

func.func @f(%x: tensor<5x3xf32>, %i: tensor<2xi64>) -> tensor<3x5xf32> {
  %r = dataflow.section "s"(%x, %i) : (tensor<5x3xf32>, tensor<2xi64>) -> tensor<3x5xf32> {
  ^bb0(%a: tensor<5x3xf32>, %b: tensor<2xi64>):
    %0 = dataflow.load %b at 0 [1] : tensor<2xi64> -> !dataflow.stream<tensor<2xi64>>
    %1 = dataflow.gather %a[%0] : tensor<5x3xf32>, !dataflow.stream<tensor<2xi64>> -> !dataflow.stream<tensor<2x3xf32>>
    // expected-error @+1 {{dataflow.scatter: the result has the type of the base}}
    %y = dataflow.scatter %a[%0] = %1 : tensor<5x3xf32>, !dataflow.stream<tensor<2xi64>>, !dataflow.stream<tensor<2x3xf32>> -> tensor<3x5xf32>
    dataflow.yield %y : tensor<3x5xf32>
  }
  return %r : tensor<3x5xf32>
}

// -----

func.func @f(%x: tensor<5x3xf32>, %i: tensor<2xi64>) -> tensor<5x3xf32> {
  %r = dataflow.section "s"(%x, %i) : (tensor<5x3xf32>, tensor<2xi64>) -> tensor<5x3xf32> {
  ^bb0(%a: tensor<5x3xf32>, %b: tensor<2xi64>):
    %0 = dataflow.load %b at 0 [1] : tensor<2xi64> -> !dataflow.stream<tensor<2xi64>>
    %1 = dataflow.load %a at 0 [3, 1] : tensor<5x3xf32> -> !dataflow.stream<tensor<2x3xf32>>
    %2 = dataflow.load %a at 0 [3] : tensor<5x3xf32> -> !dataflow.stream<tensor<2xf32>>
    // expected-error @+1 {{dataflow.scatter: indices are integers and rows have the base's element type}}
    %y = dataflow.scatter %a[%2] = %1 : tensor<5x3xf32>, !dataflow.stream<tensor<2xf32>>, !dataflow.stream<tensor<2x3xf32>> -> tensor<5x3xf32>
    dataflow.yield %y : tensor<5x3xf32>
  }
  return %r : tensor<5x3xf32>
}

// -----

func.func @f(%x: tensor<5x3xf32>, %i: tensor<2xi64>) -> tensor<5x3xf32> {
  %r = dataflow.section "s"(%x, %i) : (tensor<5x3xf32>, tensor<2xi64>) -> tensor<5x3xf32> {
  ^bb0(%a: tensor<5x3xf32>, %b: tensor<2xi64>):
    %0 = dataflow.load %b at 0 [1] : tensor<2xi64> -> !dataflow.stream<tensor<2xi64>>
    %1 = dataflow.load %a at 0 [3, 1] : tensor<5x3xf32> -> !dataflow.stream<tensor<2x3xf32>, [1 repeat]>
    // expected-error @+1 {{dataflow.scatter: all streams must have the same loop counts, found [(), (1,)]}}
    %y = dataflow.scatter %a[%0] = %1 : tensor<5x3xf32>, !dataflow.stream<tensor<2xi64>>, !dataflow.stream<tensor<2x3xf32>, [1 repeat]> -> tensor<5x3xf32>
    dataflow.yield %y : tensor<5x3xf32>
  }
  return %r : tensor<5x3xf32>
}

// -----

func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  %r = dataflow.section "s"(%x) : (tensor<4xf32>) -> tensor<4xf32> {
  ^bb0(%a: tensor<4xf32>):
    %0 = dataflow.load %a at 0 [1] : tensor<4xf32> -> !dataflow.stream<tensor<4xf32>>
    // expected-error @+1 {{dataflow.fork: every output has the type of the input}}
    %1, %2 = dataflow.fork %0 : !dataflow.stream<tensor<4xf32>> -> !dataflow.stream<tensor<4xf32>>, !dataflow.stream<tensor<2xf32>, [2 on 0 by 2]>
    %y = dataflow.store (%1 at 0 [1]) : (!dataflow.stream<tensor<4xf32>>) -> tensor<4xf32>
    dataflow.yield %y : tensor<4xf32>
  }
  return %r : tensor<4xf32>
}

// -----

func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  %r = dataflow.section "s"(%x) : (tensor<4xf32>) -> tensor<4xf32> {
  ^bb0(%a: tensor<4xf32>):
    %0 = dataflow.load %a at 0 [1] : tensor<4xf32> -> !dataflow.stream<tensor<4xf32>>
    %y = dataflow.store (%0 at 0 [1]) : (!dataflow.stream<tensor<4xf32>>) -> tensor<4xf32>
    // expected-error @+1 {{dataflow.fork: at least one output}}
    "dataflow.fork"(%0) : (!dataflow.stream<tensor<4xf32>>) -> ()
    dataflow.yield %y : tensor<4xf32>
  }
  return %r : tensor<4xf32>
}

// -----

func.func @f(%x: tensor<4xf32>) -> tensor<8xf32> {
  %r = dataflow.section "s"(%x) : (tensor<4xf32>) -> tensor<8xf32> {
  ^bb0(%a: tensor<4xf32>):
    %0 = dataflow.load %a at 0 [1] : tensor<4xf32> -> !dataflow.stream<tensor<4xf32>>
    // expected-error @+1 {{dataflow.merge: the innermost loop of the output runs over the inputs}}
    %1 = dataflow.merge %0 : !dataflow.stream<tensor<4xf32>> -> !dataflow.stream<tensor<4xf32>, [2 on 0 by 4]>
    %y = dataflow.store (%1 at 0 [1]) : (!dataflow.stream<tensor<4xf32>, [2 on 0 by 4]>) -> tensor<8xf32>
    dataflow.yield %y : tensor<8xf32>
  }
  return %r : tensor<8xf32>
}

// -----

func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  %r = dataflow.section "s"(%x) : (tensor<4xf32>) -> tensor<4xf32> {
  ^bb0(%a: tensor<4xf32>):
    %0 = dataflow.load %a at 0 [1] : tensor<4xf32> -> !dataflow.stream<tensor<4xf32>>
    // expected-error @+1 {{dataflow.merge: inputs have the output's tile and all but its innermost loop}}
    %1 = dataflow.merge %0, %0 : !dataflow.stream<tensor<4xf32>>, !dataflow.stream<tensor<4xf32>> -> !dataflow.stream<tensor<2xf32>, [2 on 0 by 2]>
    %y = dataflow.store (%1 at 0 [1]) : (!dataflow.stream<tensor<2xf32>, [2 on 0 by 2]>) -> tensor<4xf32>
    dataflow.yield %y : tensor<4xf32>
  }
  return %r : tensor<4xf32>
}

// -----

func.func @f(%x: tensor<4xf32>) -> tensor<8xi32> {
  %r = dataflow.section "s"(%x) : (tensor<4xf32>) -> tensor<8xi32> {
  ^bb0(%a: tensor<4xf32>):
    %0 = dataflow.load %a at 0 [1] : tensor<4xf32> -> !dataflow.stream<tensor<4xf32>>
    // expected-error @+1 {{dataflow.merge: inputs have the output's element type}}
    %1 = dataflow.merge %0, %0 : !dataflow.stream<tensor<4xf32>>, !dataflow.stream<tensor<4xf32>> -> !dataflow.stream<tensor<4xi32>, [2 on 0 by 4]>
    %y = dataflow.store (%1 at 0 [1]) : (!dataflow.stream<tensor<4xi32>, [2 on 0 by 4]>) -> tensor<8xi32>
    dataflow.yield %y : tensor<8xi32>
  }
  return %r : tensor<8xi32>
}
