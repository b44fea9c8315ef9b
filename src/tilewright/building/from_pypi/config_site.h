/* libc++'s configuration, which its build would write. zig gives these values on the command line. */
#ifndef _LIBCPP___CONFIG_SITE
#define _LIBCPP___CONFIG_SITE
#define _LIBCPP_ABI_VERSION 1
#define _LIBCPP_ABI_NAMESPACE __1
#define _LIBCPP_ASSERTION_SEMANTIC_DEFAULT _LIBCPP_ASSERTION_SEMANTIC_IGNORE
#define _LIBCPP_HARDENING_MODE_DEFAULT _LIBCPP_HARDENING_MODE_NONE
#define _LIBCPP_HAS_FILESYSTEM 1
#define _LIBCPP_HAS_LOCALIZATION 1
#define _LIBCPP_HAS_MONOTONIC_CLOCK 1
#define _LIBCPP_HAS_MUSL_LIBC 0
#define _LIBCPP_HAS_RANDOM_DEVICE 1
#define _LIBCPP_HAS_TERMINAL 1
#define _LIBCPP_HAS_THREADS 1
#define _LIBCPP_HAS_UNICODE 1
#define _LIBCPP_HAS_VENDOR_AVAILABILITY_ANNOTATIONS 0
#define _LIBCPP_HAS_WIDE_CHARACTERS 1
#define _LIBCPP_PSTL_BACKEND_SERIAL
/* The library is linked into each kernel library, and no name of it is visible outside. */
#define _LIBCPP_DISABLE_VISIBILITY_ANNOTATIONS
#endif
