"""Everything that a method's author reads: channel methods, token pruners, rotation, options.

`options` declares what a method may be set to, `registry` finds methods by name, `settings` holds
one token pruner and one channel method.
"""
