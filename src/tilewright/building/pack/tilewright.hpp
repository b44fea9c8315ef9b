// Tilewright packs in C++17: describe a problem, get a plan, run it.
//
//   #include <tilewright/xyz.hpp>                        // problems of the op xyz; it includes this file
//
//   tilewright::Pack pack = tilewright::Pack::open("/opt/kernels", "gfx942");
//   const auto problem    = tilewright::xyz::Problem().m(4096).n(4096).dtype("fp16");
//   pack.plan(problem)->run({a, b, c}, stream);          // addresses in device memory
//
// kernel.hpp has one kernel, plan.hpp the launches of a problem, library.hpp the kernels of one library (Pack),
// registry.hpp those of several with priorities and strategies, timing.hpp measures,
// verify.hpp compares results with a reference on the host.
//
// Failures throw tilewright::Error. That a kernel does not support a problem is a Reason, not a failure. All const
// functions may be called from several threads at once. Needs dlopen (link with ${CMAKE_DL_LIBS}) and no HIP header.
#ifndef TILEWRIGHT_HPP
#define TILEWRIGHT_HPP

#include "kernel.hpp"
#include "library.hpp"
#include "plan.hpp"
#include "registry.hpp"
#include "timing.hpp"
#include "verify.hpp"

#endif
