// SPDX-License-Identifier: MIT
// The main of every doctest executable.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>

// The loader frees thread-local memory of libraries that were opened later, as the doubles of CUDA
// are, where ThreadSanitizer does not see that their threads have ended.
extern "C" [[gnu::visibility("default")]] const char* __tsan_default_suppressions();
extern "C" const char* __tsan_default_suppressions() { return "race:_dl_deallocate_tls\n"; }
